"""Rollouts along a demonstration: what matches is played, what does not is a leaf beside the patch."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random

import pytest

from rolltree.engine.tabular import TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.strategy import NeedsError
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Tree
from rolltree_papers.ui_s1 import SemiOnlineTurns
from studies.searches import Copying


class Lane(Walk):
    """Walk, demonstrated by the letter "a" alone."""

    def act(self, item, state, rng: Random, noise: float = 0.0) -> str:
        return "a!"


def engine(right: float) -> TabularEngine:
    """Says "a!" with a chance, else "z!"-like words of one letter."""
    codec = tiny_engine().codec

    def distribution(prefix: tuple[int, ...]) -> list[float]:
        row = [0.0] * codec.vocab_size
        spoken = prefix and prefix[-1] < 25 and len(prefix) > 2 and prefix[-2] >= 0 and law_turn(prefix)
        if spoken:
            row[25] = 1.0
        else:
            row[0], row[24] = right, 1 - right
        return row

    def law_turn(prefix: tuple[int, ...]) -> bool:
        since = list(prefix)[2:]
        words = 0
        for token in since:
            words = 0 if token == 25 else words + 1
        # A turn is one letter and the mark; after the mark the environment answers with one letter.
        return words == (1 if 25 not in since else 2)

    return TabularEngine(distribution, codec)


def grown(strategy: SemiOnlineTurns, right: float, seed: int = 0) -> Tree:
    task = Lane()
    [tree] = asyncio.run(grow(strategy, engine(right), task, islice(task.items("train"), 1), seed=seed))
    return tree


def test_a_policy_that_always_matches_needs_no_patch() -> None:
    tree = grown(SemiOnlineTurns(3), 1.0)
    turns = [n for n in tree if n.trainable]
    assert {n.scores["match"] for n in turns} == {1.0}
    assert not [n for n in tree if n.role == "hint"]
    assert [leaf.scores["reward"] for leaf in tree.leaves()] == [1.0] * 3


@pytest.mark.parametrize("patches", [0, 1, -1])
def test_a_policy_that_never_matches_is_put_back_as_often_as_it_may_be(patches: int) -> None:
    tree = grown(SemiOnlineTurns(2, patches), 0.0)
    wrong = [n for n in tree if n.trainable]
    hints = [n for n in tree if n.role == "hint"]
    per_rollout = 2 if patches == -1 else patches
    assert len(hints) == 2 * per_rollout
    assert len(wrong) == 2 * (per_rollout if patches == -1 else per_rollout + 1)
    assert all(n.is_leaf and n.scores["match"] == 0 and n.scores["reward"] == 0 for n in wrong)
    assert all(h.scores["patch"] == 1 and not h.trainable for h in hints)
    if patches == -1:
        ends = [leaf for leaf in tree.leaves() if not leaf.trainable]
        assert [leaf.scores["reward"] for leaf in ends] == [1.0, 1.0]  # where the demonstration leads


def test_it_keeps_the_contract_of_strategies() -> None:
    check_strategy(SemiOnlineTurns(3, 1), [Walk()])


def test_a_task_without_an_expert_is_refused() -> None:
    with pytest.raises(NeedsError, match="no expert to give one"):
        SemiOnlineTurns().check(tiny_engine(), Copying())
    SemiOnlineTurns().check(tiny_engine(), SpellTask())
