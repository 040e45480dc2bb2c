"""Rewards and marks made of a verdict's parts."""

from __future__ import annotations

import pytest

from rolltree.errors import RolltreeError
from rolltree.filter.parts import Composite, Flawed
from rolltree.filter.shaping import RECORD
from rolltree.tree import Tree

PARTS = {"keys": 1.0, "types": 0.5, "values": 1 / 3, "parses": 1.0}


def judged(*leaves: dict[str, float]) -> Tree:
    tree = Tree("t0", [1])
    for scores in leaves:
        tree.extend(0, [2], status="done", scores=dict(scores))
    return tree


def test_the_composite_is_the_gated_sum_and_keeps_the_outcome() -> None:
    tree = judged({"reward": 1.0, **PARTS}, {"reward": 0.0, **PARTS, "parses": 0.0})
    for _ in range(2):
        Composite(RECORD)(tree, 10)
        assert [leaf.scores["reward"] for leaf in tree.leaves()] == pytest.approx([1 + 0.5 + 1 / 3 + 1, 1 + 0.5])
        assert [leaf.scores["outcome"] for leaf in tree.leaves()] == [1.0, 0.0]


def test_a_part_that_was_not_measured_is_no_zero() -> None:
    with pytest.raises(RolltreeError, match="node 1 of tree 't0' has no part 'keys'"):
        Composite(RECORD)(judged({"reward": 1.0}), 10)
    with pytest.raises(RolltreeError, match="has no part 'steps'"):
        Flawed()(judged({"reward": 1.0}), 10)


def test_only_right_answers_by_wrong_steps_are_flawed() -> None:
    tree = judged(*({"reward": r, "steps": s} for r, s in ((1.0, 1.0), (1.0, 0.5), (0.0, 0.5))))
    Flawed()(tree, 10)
    assert [leaf.scores["flawed"] for leaf in tree.leaves()] == [0.0, 1.0, 0.0]
