"""The local engine keeps the engine contract, natively and through a foreign forward."""

import functools

import pytest
import torch

from rolltree.testing.engine import ENGINE_CHECKS
from tests.engine import tiny

ENGINES = {
    "native": tiny.engine,
    "foreign": lambda: tiny.engine(tiny.gpt2()),
    "float64": functools.partial(tiny.engine, dtype=torch.float64),
    "alone": functools.partial(tiny.engine, max_batch=1),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_engine_keeps_the_contract(check, name):
    if name == "alone" and check == "sampling_follows_the_distribution":
        pytest.skip("thousands of one-token requests one at a time; the distribution does not depend on the batch")
    ENGINE_CHECKS[check](ENGINES[name], prefix=[3, 1, 4])
