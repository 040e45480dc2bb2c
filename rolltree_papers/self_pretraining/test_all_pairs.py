"""Every two leaves compared: shares of readings, errors that cancel, and who is rewarded for it."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.control.ledger import Budget, Limits
from rolltree.generate.independent import Independent
from rolltree.generate.judge.against import all_pairs
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Entry, at_once
from rolltree.generate.roles import is_side
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.testing.forests import flat
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree_papers.self_pretraining import Compared


def shares(rewards: list[float], judge: MeasuredJudge) -> np.ndarray:
    tree = flat(rewards)
    group = [Entry(tree, leaf) for leaf in tree.leaves()]
    return at_once(all_pairs(None, judge, group, np.random.default_rng(0)), "test")  # type: ignore[arg-type]


def test_shares_rank_a_group_sum_to_half_of_it_and_ties_share_their_readings() -> None:
    assert shares([3.0, 1.0, 2.0, 1.0], MeasuredJudge()).tolist() == pytest.approx([1.0, 1 / 6, 2 / 3, 1 / 6])
    assert shares([1.0, 1.0], MeasuredJudge()).tolist() == [0.5, 0.5]
    assert np.isnan(shares([1.0], MeasuredJudge())).all()
    noisy = shares([0.1 * i for i in range(12)], MeasuredJudge(noise=0.3))
    assert noisy.sum() == pytest.approx(6)
    assert noisy[-3:].mean() > noisy[:3].mean() + 0.4


def test_what_the_place_adds_cancels() -> None:
    assert shares([1.0, 0.0], MeasuredJudge(bias=5.0)).tolist() == [0.5, 0.5]
    assert shares([1.0, 0.0], MeasuredJudge(bias=0.5)).tolist() == [1.0, 0.0]


def test_a_frozen_copy_compares_candidates_and_its_shares_are_the_reward() -> None:
    task = SpellTask()
    parts = load_recipe("self_pretraining", judge="likelihood", rollouts=3).build()
    assert not parts.peers["judge"].trained
    engine, account = tiny_engine(), Budget()
    forest = asyncio.run(
        grow(parts.strategy, engine, task, islice(task.items("train"), 2), roles={"judge": engine}, budget=account)
    )
    trees = [tree for tree in forest if not is_side(tree)]
    assert account.spent.judge_calls == 2 * 5 * 4
    for tree in trees:
        for shaper in parts.shapers:
            shaper(tree, 16)
        leaves = tree.leaves()
        assert sum(leaf.scores["reward"] for leaf in leaves) == pytest.approx(len(leaves) / 2)
        assert all(leaf.scores["reward"] == leaf.scores["judge"] for leaf in leaves)


def test_what_could_not_be_paid_is_dropped_and_has_not_lost() -> None:
    task = SpellTask()
    judge = MeasuredJudge(noise=0.1)
    forest = asyncio.run(
        grow(Compared(Independent(3), judge), tiny_engine(), task, islice(task.items("train"), 1),
             budget=Budget(Limits(judge_calls=0)))
    )  # fmt: skip
    (tree,) = forest
    for leaf in tree.leaves():
        assert leaf.usage == "dropped: the budget ended before it was judged"
        assert "judge" not in leaf.scores
