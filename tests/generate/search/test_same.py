"""What the searches of 0.1 grew they still grow: their forests to the token, their stored evidence to the digit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from typing import Any

import pytest

from rolltree.engine.tabular import TabularEngine
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Forest
from rolltree_papers.ets import StepSearch
from rolltree_papers.mars2 import Attempts, Prior
from rolltree_papers.mars2.study import mars2
from studies.searches import drafter, grown, mender
from tests.generate.test_stepsearch import MODES, TABLE, Noisy, Right, modes


def print_of(forest: Forest) -> str:
    """A forest's tokens, shape, outcomes and decisions in twelve letters; times and the last digits left out."""
    told: list[Any] = []
    for tree in forest:
        told.append((tree.id, tree.notes.get("answer")))
        for n in tree.walk():
            scores = sorted((k, round(float(v), 9)) for k, v in n.scores.items())
            told.append((n.id, n.parent, n.role, n.actions.tolist(), n.birth, n.status, n.finish, n.actor, scores))
        # What a judge was paid is told since judges have calls; it decides nothing.
        heard = (e for e in tree.events if not e.why.startswith("judged "))
        told.extend((e.kind, e.node, e.why, sorted((k, _plain(v)) for k, v in e.numbers.items())) for e in heard)
    return sha256(repr(told).encode()).hexdigest()[:12]


def _plain(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def spelled(strategy: TreeStrategy) -> Forest:
    task = SpellTask(stop=())
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 4), seed=2))


def moded(strategy: StepSearch) -> Forest:
    task = Right(max_tokens=10, stop=())
    engine = TabularEngine(modes, MODES, embeddings=TABLE)
    return asyncio.run(grow(strategy, engine, task, islice(task.items("train"), 6), seed=4))


STEPS = StepSearch(9, 1, "", Noisy())
FORESTS = {
    "attempts": lambda: spelled(Attempts(8)),
    "two agents": lambda: grown(Attempts(12), 3, 6, drafter(), peer=mender()),
    "by chance": lambda: grown(Attempts(9, choose="chance"), 1, 6, drafter(), peer=mender()),
    "wide": lambda: grown(Attempts(5, choose="wide"), 1, 6, drafter(), peer=mender()),
    "beta": lambda: grown(Attempts(8, prior=Prior("beta")), 1, 6, drafter(), peer=mender()),
    "ets": lambda: moded(STEPS),
    "rebase": lambda: moded(replace(STEPS, select="rebase")),
    "beam": lambda: moded(replace(STEPS, select="beam")),
    "confident": lambda: spelled(StepSearch(6, 3, "!", Confidence("least"), cost="tokens", final="best")),
    "few rounds": lambda: spelled(StepSearch(6, 1, "", rounds=3)),
}
GROWN = {
    "attempts": "855cdd38b524",
    "two agents": "f56ebdaf93a8",
    "by chance": "05492384c9e8",
    "wide": "286966b33cef",
    "beta": "32268d852a3e",
    "ets": "8304ad90a5cb",
    "rebase": "f257124e9414",
    "beam": "6ce10afc7d4a",
    "confident": "385a7cdfede8",
    "few rounds": "8625d372401c",
}
"""As the code of before the search primitive grew them. The step searches grade to six places since: every node and
width is the same, last digits are not."""


@pytest.mark.parametrize("name", FORESTS)
def test_the_same_forests(name: str) -> None:
    assert print_of(FORESTS[name]()) == GROWN[name]


def test_the_stored_evidence_to_the_digit() -> None:
    """`evidence/mars2.json`, seed 0."""
    found = mars2(0)
    assert (found.value, found.baseline) == (0.5533333333333333, 0.5333333333333333)
