"""What if: where continuations may begin, and the credit of the branches before and after, in exact numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rolltree.analysis.whatif import before_after, judged_below, kept_tokens
from rolltree.credit.registry import load_credit
from rolltree.errors import RolltreeError
from rolltree.tree import Tree


def a_tree() -> Tree:
    """A prompt, a turn with its answer, and two leaves below: right and wrong."""
    tree = Tree("t", [1, 2])
    turn = tree.extend(0, [3, 4, 5], status="done", finish="tool")
    answer = tree.extend(turn, [6], role="env", status="done")
    tree.extend(answer, [7, 8, 9, 10], status="done", finish="eos", scores={"reward": 1.0})
    tree.extend(answer, [11], status="done", finish="eos", scores={"reward": 0.0})
    return tree


def test_the_policys_tokens_are_sampled_anew_and_what_others_wrote_stays():
    tree = a_tree()
    assert kept_tokens(tree, 3, None) == 0
    assert kept_tokens(tree, 3, 3) == 3
    assert kept_tokens(tree, 2, None) == 1
    assert kept_tokens(tree, 0, None) == 2
    for node, token, said in ((3, 4, "has 4 tokens and none numbered 4"), (3, -1, "none numbered -1"),
                              (9, None, "has no node 9"), (2, 0, "written by the policy but by env")):  # fmt: skip
        with pytest.raises(RolltreeError, match=said):
            kept_tokens(tree, node, token)
    tree.extend(3, [12], role="env", status="done", finish="stop")
    with pytest.raises(RolltreeError, match="node 5 is a leaf in which env ended the rollout"):
        kept_tokens(tree, 5, None)


def test_credit_before_and_after_is_of_the_same_tokens_where_a_node_was_cut():
    old, new = a_tree(), a_tree()
    start = new.cut(3, 2)
    for reward in (1.0, 1.0, 0.0):
        new.extend(start, [20], status="done", finish="eos", scores={"reward": reward})
    rows = before_after(old, new, start.id, load_credit("rloo"))
    assert [r.node.id for r in rows] == [start.id, 3, 6, 7, 8]
    assert [r.fresh for r in rows] == [False, False, True, True, True]
    # Leave-one-out: 1 − 0 before; with rewards 1, 0, 1, 1, 0 the right ones get 1 − 2/4, the wrong ones 0 − 3/4.
    np.testing.assert_allclose([r.before for r in rows], [1, 1, math.nan, math.nan, math.nan])
    np.testing.assert_allclose([r.after for r in rows[1:]], [0.5, 0.5, 0.5, -0.75])
    # What they share is taught their mean, each weighed by one over its length: 7 tokens, and 6 of the new ones.
    np.testing.assert_allclose(rows[0].after, (0.5 / 7 + (0.5 + 0.5 - 0.75) / 6) / (1 / 7 + 3 / 6))
    assert (rows[0].below.right, rows[0].below.judged) == (3, 4)
    assert [r.before for r in before_after(old, old, 2, load_credit("rloo"))][1:] == [1.0, -1.0]


def test_leaves_that_nobody_judged_are_no_failures():
    tree = a_tree()
    tree.extend(2, [5], status="failed")
    below = judged_below(tree, tree[2])
    assert (below.leaves, below.judged, below.right, below.reward) == (3, 2, 1, 0.5)
