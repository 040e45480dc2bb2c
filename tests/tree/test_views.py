"""Paths laid end to end, and metrics of trees small enough to count by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from rolltree.tree import Tree
from rolltree.tree.node import ROLES
from rolltree.tree.views import (
    effective_branches,
    leaf_counts,
    metrics,
    path_view,
    path_views,
    policy_turns,
    sharing_ratio,
)
from tests.tree.forest_strategies import trees


@settings(max_examples=60, deadline=None)
@given(tree=trees())
def test_a_path_view_is_its_nodes_end_to_end(tree: Tree):
    for leaf, view in zip(tree.leaves(), path_views(tree), strict=True):
        assert view.actions.tobytes() == tree.prefix(leaf).tobytes()
        assert view.path_ends[-1] == len(view)
        for node, end in zip(view.nodes, view.path_ends, strict=True):
            own = slice(end - len(node), end)
            assert view.actions[own].tobytes() == node.actions.tobytes()
            assert [ROLES[r] for r in view.role[own]] == [node.role] * len(node)
            assert (
                np.isnan(view.sampling_logprob[own]).all()
                if node.sampling_logprob is None
                else view.sampling_logprob[own].tobytes() == node.sampling_logprob.tobytes()
            )
            assert (view.version[own] == (-1 if node.version is None else node.version)).all()
            assert (view.loss_mask[own] == (node.trainable and (True if node.keep is None else node.keep))).all()


@settings(max_examples=40, deadline=None)
@given(tree=trees(kinds=("ids",)))
def test_shape_metrics_agree_with_brute_force(tree: Tree):
    paths = [tree.path(n) for n in tree.leaves()]
    assert leaf_counts(tree) == {n.id: sum(n in p for p in paths) for n in tree}
    flat = sum(len(n) for p in paths for n in p if n.role == "policy")
    own = sum(len(n) for n in tree if n.role == "policy")
    assert sharing_ratio(tree) == pytest.approx(own / flat if flat else 1.0)


def test_sharing_is_what_packing_saves():
    tree = Tree("t", [1] * 50)
    trunk = tree.extend(0, [2] * 8)
    tree.extend(trunk, [3] * 2)
    tree.extend(trunk, [4] * 6)
    assert sharing_ratio(tree) == (8 + 2 + 6) / (2 * 8 + 2 + 6)
    group = Tree("g", [1])
    for _ in range(4):
        group.extend(0, [5])
    assert sharing_ratio(group) == 1.0


def test_effective_branches_show_collapse():
    even, collapsed = Tree("e", [1]), Tree("c", [1])
    for _ in range(4):
        even.extend(0, [2])
    trunk = collapsed.extend(0, [2])
    collapsed.extend(0, [3])
    for i in range(7):
        collapsed.extend(trunk, [i])
    assert effective_branches(even) == pytest.approx(4)
    assert effective_branches(collapsed) == pytest.approx(
        math.exp(-(7 / 8 * math.log(7 / 8) + 1 / 8 * math.log(1 / 8)))
    )
    assert effective_branches(Tree("bare", [1])) == 0


def test_metrics_of_a_tree_counted_by_hand():
    tree = Tree("t", [1])
    one = tree.extend(0, [2, 3], birth="restart", sampling_logprob=[-1, -1])
    two = tree.extend(0, [2, 3], birth="restart", sampling_logprob=[-1, -1])
    tree.extend(0, [2, 4], birth="forced", forced=True)
    tree.extend(0, [5, 6], birth="splice")
    tree.cut(two, 1)
    one.notes["answer"], two.notes["answer"] = "7", "7"
    tree.prune(one, "similar to a sibling")
    found = metrics(tree, asked=5)
    assert (found.asked, found.leaves, found.duplicated, found.answers) == (5, 4, 1, 1)
    assert found.decoded == 8
    assert found.births == {"restart": 2, "forced": 1, "splice": 1}
    assert found.prunes == {"similar to a sibling": 1}
    assert found.depths == {1: 3, 2: 1}
    assert found.without_sampling_logprob == 0.25


def test_greedy_leaves_have_no_behaviour_log_prob():
    tree = Tree("t", [1])
    tree.extend(0, [2], sampling_logprob=[np.nan])
    tree.extend(0, [3], role="env")
    assert metrics(tree).without_sampling_logprob == 0.5
    assert metrics(Tree("bare", [1])).leaves == 0
    assert [ROLES[code] for code in path_view(tree, 2).role] == ["prompt", "env"]


def test_turns_are_what_the_policy_wrote_between_two_words() -> None:
    tree = Tree("t", [0])
    first = tree.extend(0, [1])
    more = tree.extend(first, [2])
    hint = tree.extend(more, [3], role="hint")
    also = tree.extend(hint, [4])
    answer = tree.extend(also, [9], role="env")
    again = tree.extend(answer, [0], role="prompt")
    last = tree.extend(again, [5])
    assert policy_turns(tree.path(last)) == [[], [first, more, also], [], [last]]
    assert policy_turns(tree.path(answer))[-1] == []
