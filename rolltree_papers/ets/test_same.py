"""What the searches of 0.1 grew they still grow, to the token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice

import pytest

from rolltree.engine.tabular import TabularEngine
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.runner import grow
from rolltree.tree import Forest
from rolltree_papers.ets import StepSearch
from tests.generate.modes import MODES, TABLE, Noisy, Right, modes
from tests.generate.search.prints import print_of, spelled


def moded(strategy: StepSearch) -> Forest:
    task = Right(max_tokens=10, stop=())
    engine = TabularEngine(modes, MODES, embeddings=TABLE)
    return asyncio.run(grow(strategy, engine, task, islice(task.items("train"), 6), seed=4))


STEPS = StepSearch(9, 1, "", Noisy())
FORESTS = {
    "ets": lambda: moded(STEPS),
    "rebase": lambda: moded(replace(STEPS, select="rebase")),
    "beam": lambda: moded(replace(STEPS, select="beam")),
    "confident": lambda: spelled(StepSearch(6, 3, "!", Confidence("least"), cost="tokens", final="best")),
    "few rounds": lambda: spelled(StepSearch(6, 1, "", rounds=3)),
}
GROWN = {
    "ets": "8304ad90a5cb",
    "rebase": "f257124e9414",
    "beam": "6ce10afc7d4a",
    "confident": "385a7cdfede8",
    "few rounds": "8625d372401c",
}
"""As the code of before the search primitive grew them."""


@pytest.mark.parametrize("name", FORESTS)
def test_the_same_forests(name: str) -> None:
    assert print_of(FORESTS[name]()) == GROWN[name]
