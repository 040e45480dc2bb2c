"""A pool keeps the contract of one engine."""

import pytest

from rolltree.cluster import PoolEngine
from rolltree.testing.engine import ENGINE_CHECKS
from rolltree.testing.tiny import tiny_engine
from tests.cluster.inprocess import InProcess
from tests.engine import tiny

# Four thousand one-token requests: once is enough, no hop looks at the distribution.
CHECKS = [check for check in ENGINE_CHECKS if check != "sampling_follows_the_distribution"]


@pytest.mark.parametrize("check", ENGINE_CHECKS)
def test_a_pool_keeps_the_contract(check: str) -> None:
    ENGINE_CHECKS[check](lambda: PoolEngine(tiny_engine, 3, InProcess(), latency=0.001))


@pytest.mark.parametrize("check", CHECKS)
def test_a_pool_that_follows_everything_keeps_the_contract(check: str) -> None:
    ENGINE_CHECKS[check](lambda: PoolEngine(tiny_engine, 3, InProcess(), latency=0.001, follow=True))


@pytest.mark.parametrize("check", CHECKS)
def test_a_pool_of_transformers_keeps_the_contract(check: str) -> None:
    ENGINE_CHECKS[check](lambda: PoolEngine(tiny.engine, 2, InProcess(), latency=0.001), prefix=[3, 1, 4])
