"""Comparisons with one member of the group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.filter.versus import Versus
from rolltree.generate.judge.measured import MeasuredJudge, MeasureError
from rolltree.testing.forests import flat
from rolltree.tree import Tree
from rolltree.tree.table import table


def judged(tree: Tree, **knobs: Any) -> tuple[int, list[float]]:
    """Which leaf was compared with, and the shares of votes, over the leaves that have an outcome."""
    made = {name: knobs.pop(name) for name in ("votes", "seed") if name in knobs}
    Versus(MeasuredJudge(**knobs), **made)(tree, 1)
    leaves = [leaf for leaf in tree.leaves() if leaf.status == "done"]
    [chosen] = [i for i, leaf in enumerate(leaves) if leaf.scores["reference"]]
    return chosen, [leaf.scores["versus"] for leaf in leaves]


def test_an_exact_judge_compares_qualities_and_equals_do_not_win() -> None:
    rewards = [0.0, 1.0, 0.5, 0.5]
    tree = flat([*rewards, None])
    chosen, versus = judged(tree)
    assert versus == [float(r > rewards[chosen]) for r in rewards]
    assert "versus" not in tree.leaves()[4].scores


def test_the_reference_is_drawn_anew_and_the_draw_is_the_groups_own() -> None:
    chosen = [judged(flat([0.0] * 8, id=f"t{i}"))[0] for i in range(40)]
    assert len(set(chosen)) > 4
    assert judged(flat([0.0] * 8, id="t0"))[0] == chosen[0]
    assert {judged(flat([0.0] * 8), seed=s)[0] for s in range(20)} != {chosen[0]}


def test_a_bias_for_what_is_read_first_splits_the_vote_between_equals() -> None:
    chosen, versus = judged(flat([1.0, 1.0, 1.0]), bias=0.1)
    assert [v for i, v in enumerate(versus) if i != chosen] == [0.5, 0.5]
    tree = flat([1.0, 1.0, 1.0, 3.0, 3.0, 3.0])
    judged(tree, bias=0.1)
    lost, nothing = (load_credit("pairwise", split=s, skew=1.0)(table([tree])).leaf for s in ("loss", "zero"))
    assert lost is not None
    assert nothing is not None
    assert lost.sum() < nothing.sum()


def test_noise_is_that_of_every_reading() -> None:
    tree = flat([0.0] * 400)
    chosen, versus = judged(tree, noise=1.0, votes=4)
    others = np.array([v for i, v in enumerate(versus) if i != chosen])
    assert set(np.round(8 * others, 9)) <= set(range(9))
    assert abs(others.mean() - 0.5) < 0.1


def test_a_quality_that_nobody_measured_is_an_error() -> None:
    with pytest.raises(MeasureError, match=r"node 1 of tree 't0' has no part 'charm'"):
        Versus(MeasuredJudge("charm"))(flat([1.0, 0.0]), 1)
    alone = flat([1.0])
    judged(alone)
    assert load_credit("pairwise")(table([alone])).leaf == pytest.approx([0.0])
