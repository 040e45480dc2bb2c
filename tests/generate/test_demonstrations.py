"""Given answers in the tree: forced, scored, verified, and beside the policy's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.forced import Demonstrations
from rolltree.generate.runner import grow
from rolltree.generate.strategy import NeedsError
from rolltree.task.nano.arithmetic import Arithmetic
from rolltree.task.protocol import Item, Split
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import Walk, tiny_engine
from studies.searches import Copying
from tests.train.toy import Early

SIGNS = Letters("0123456789+-=,.", eos_id=14)


def engine() -> TabularEngine:
    return TabularEngine(lambda _: [1 / 15] * 15, SIGNS)


def test_right_and_flawed_answers_stand_beside_rollouts() -> None:
    task, strategy = Arithmetic(), Demonstrations(shown=1, flawed=2, noise=1.0, rollouts=3)
    [tree] = asyncio.run(grow(strategy, engine(), task, islice(task.items("train"), 1), seed=0))
    right, *flawed = given = [leaf for leaf in tree.leaves() if leaf.forced]
    assert len(given) == 3
    assert len(tree.leaves()) == strategy.leaves == 6
    assert right.scores["reward"] == 1
    assert all(leaf.scores["steps"] < 1 for leaf in flawed)
    for leaf in given:
        assert leaf.trainable
        assert leaf.finish == "eos"
        assert np.isnan(leaf.sampling_logprob).all()
        np.testing.assert_allclose(leaf.logp, np.log(1 / 15), rtol=1e-6)
    assert all(np.isfinite(leaf.sampling_logprob).all() for leaf in tree.leaves() if not leaf.forced)


def test_an_item_has_the_same_answers_in_every_epoch() -> None:
    task, strategy = Arithmetic(), Demonstrations(flawed=2, noise=0.5)
    grown = [asyncio.run(grow(strategy, engine(), task, islice(task.items("train"), 2), seed=s)) for s in (0, 1)]
    texts = [[leaf.actions.tobytes() for tree in forest for leaf in tree.leaves()] for forest in grown]
    assert texts[0] == texts[1]


@dataclass(frozen=True)
class Lower(Early):
    """Early's items with a prompt and an answer that the contract's engine can spell."""

    max_tokens: int = 8

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for item in super().items(split, seed):
            yield replace(item, prompt=item.prompt.rstrip("="), meta={"solution": "abc"})


def test_it_keeps_the_contract_of_strategies() -> None:
    check_strategy(Demonstrations(rollouts=2), [Lower()])


def test_tasks_without_written_answers_are_refused() -> None:
    with pytest.raises(NeedsError, match="dialogues with its environment"):
        Demonstrations().check(tiny_engine(), Walk())
    with pytest.raises(NeedsError, match="has no 'solution' in its meta and the task has no expert"):
        Demonstrations().check(tiny_engine(), Copying())
