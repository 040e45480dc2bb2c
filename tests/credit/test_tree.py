"""Tree credits by hand, and the lattice: with forks at the root only all are the group mean."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.backup import backup
from rolltree.credit.registry import load_credit
from rolltree.testing.forests import flat
from rolltree.tree import Tree
from rolltree.tree.table import table


def forked() -> Tree:
    """Root → a (leaves 1, 1, 0, 1) and b (one leaf, 0): forked four times and once."""
    tree = Tree("t", [0])
    a, b = (tree.extend(0, [1], status="done") for _ in range(2))
    for above, rewards in ((a, (1, 1, 0, 1)), (b, (0,))):
        for r in rewards:
            tree.extend(above, [2, 3], status="done", scores={"reward": float(r)})
    return tree


def test_backups_differ_where_forks_are_uneven():
    tab = table([forked()])
    values = {rule: backup(tab, tab.reward, rule) for rule in ("leaf_mean", "child_mean", "any")}
    assert values["leaf_mean"][0] == pytest.approx(3 / 5)
    assert values["child_mean"][0] == pytest.approx(3 / 8)
    assert values["any"][0] == 1
    np.testing.assert_allclose(values["leaf_mean"][1], 3 / 4)


def test_backup_leaves_dead_leaves_out():
    tree = forked()
    tree.nodes[5].status = "failed"
    tab = table([tree])
    assert backup(tab, tab.reward, "leaf_mean")[1] == pytest.approx(1.0)
    tree.nodes[7].status = "pruned"
    assert np.isnan(backup(table([tree]), tab.reward, "leaf_mean")[-2])


def test_node_delta_and_global_plus_local_by_hand():
    tab = table([forked()])
    delta = load_credit("node_delta")(tab).node
    np.testing.assert_allclose(delta, [0, 0.15, 0.25, 0.25, -0.75, 0.25, -0.6, 0])
    both = load_credit("global_plus_local")(tab).node
    np.testing.assert_allclose(both[[1, 2, 4, 6, 7]], [0.3, 0.4 + 0.25, -0.6 - 0.75, -1.2, -0.6], atol=1e-12)
    rooted = load_credit("global_plus_local", by_root_of_leaves=True)(tab).node
    assert rooted[1] == pytest.approx(0.3 / 2)


def test_nested_by_hand_and_unmoved_by_cuts():
    tree = forked()
    want = [0.5 * (0.4 + 0.25), 0.5 * (0.4 + 0.25), 0.5 * (-0.6 - 0.75), 0.5 * (0.4 + 0.25), -0.6]
    np.testing.assert_allclose(load_credit("nested", whiten=False)(table([tree])).leaf, want)
    sized = load_credit("nested", whiten=False, mix="size")(table([tree])).leaf
    assert sized[0] == pytest.approx((5 * 0.4 + 4 * 0.25) / 9)
    tree.cut(3, 1)
    np.testing.assert_allclose(load_credit("nested", whiten=False)(table([tree])).leaf, want)


def test_nested_counts_all_leaves_once_where_the_root_has_one_way_on():
    tree = Tree("t", [0, 1])
    only = tree.extend(0, [2], status="done")
    tree.extend(only, [3], status="done", scores={"reward": 1.0})
    lower = tree.extend(only, [4], status="done")
    tree.extend(lower, [5], status="done", scores={"reward": 1.0})
    tree.extend(lower, [6], status="done", scores={"reward": 0.0})
    # Groups: all three (2/3) and the last two (1/2).
    want = [1 / 3, (1 / 3 + 1 / 2) / 2, (-2 / 3 - 1 / 2) / 2]
    np.testing.assert_allclose(load_credit("nested", whiten=False)(table([tree])).leaf, want)


@pytest.mark.parametrize("name", ["node_delta", "sibling", "nested"])
def test_forks_at_the_root_only_give_the_group_mean(name):
    tab = table([flat([1, 0, 0, 2])])
    advantage = load_credit(name, **({"whiten": False} if name == "nested" else {}))(tab)
    got = advantage.leaf if advantage.leaf is not None else advantage.node[tab.leaf]
    np.testing.assert_array_equal(got, load_credit("dr_grpo")(tab).leaf)


def test_fork_relative_without_forks_is_grpo_bit_for_bit():
    tab = table([forked()])
    got = load_credit("fork_relative", w_fork=0.0, gamma=1.0)(tab)
    np.testing.assert_array_equal(got.leaf, load_credit("grpo")(tab).leaf)
    assert got.node is None
    fork = load_credit("fork_relative", w_path=0.0, gamma=1.0, ddof=0, eps=0.0)(tab).node
    np.testing.assert_allclose(fork[[1, 6]], [1, -1])  # siblings 0.75 and 0
    assert fork[7] == 0  # an only child


def test_fork_relative_discounts_per_turn():
    tree = Tree("t", [0])
    for turns in (1, 2):
        above = tree[0]
        for t in range(turns):
            above = tree.extend(above, [1], status="done")
            if t < turns - 1:
                above = tree.extend(above, [9], role="env", status="done")
        above.scores["reward"] = 1.0
    tab = table([tree])
    np.testing.assert_allclose(backup(tab, tab.reward, "leaf_mean", discount=0.5)[[1, 2]], [1, 0.5])


def test_set_shared_by_hand():
    tree = flat([1, 1, 0])
    for node, answer in zip(tree.leaves(), "xxy", strict=True):
        node.notes["answer"] = answer
    # pairs 01: 1·0 (equal), 02: .5·1, 12: .5·1; mean 1/3
    got = load_credit("set_shared", size=2)(table([tree])).leaf
    np.testing.assert_allclose(got, [(0 + 0.5) / 2 - 1 / 3, (0 + 0.5) / 2 - 1 / 3, 0.5 - 1 / 3])
    alone = load_credit("set_shared", size=1)(table([tree])).leaf
    np.testing.assert_allclose(alone, [1 / 3, 1 / 3, -2 / 3])


def test_sibling_shaping_by_hand():
    tree = Tree("t", [0])
    a = tree.extend(0, [1], status="done", scores={"reward": 0.4})
    tree.extend(a, [1], status="done", scores={"reward": 1.0})
    tree.extend(a, [1], status="done", scores={"reward": 0.2})
    got = load_credit("sibling_shaping", gamma=0.5, blend=0.5, ddof=0, eps=0.0)(table([tree])).node[1:]
    shaped = np.array([0.4, 1 + 0.5 * (1 - 0.3), 0.2 + 0.5 * (0.2 - 0.7)])
    np.testing.assert_allclose(got, (shaped - shaped.mean()) / shaped.std())
    placed = load_credit("sibling_shaping", gamma=0.5, in_place=True, ddof=0, eps=0.0)(table([tree])).node[1:]
    second = 0.2 + 0.5 * (0.2 - (0.5 * 0.4 + 0.5 * 1.35))
    shaped = np.array([0.4, 1.35, second])
    np.testing.assert_allclose(placed, (shaped - shaped.mean()) / shaped.std())
    plain = load_credit("sibling_shaping", gamma=0.0, ddof=0, eps=0.0)(table([tree])).node[1:]
    np.testing.assert_allclose(plain, (np.array([0.4, 1, 0.2]) - 1.6 / 3) / np.std([0.4, 1, 0.2]))


def test_shared_mean_moves_leaf_terms_to_nodes():
    tab = table([forked()])
    got = load_credit("shared_mean", base="dr_grpo")(tab)
    assert got.leaf is None
    np.testing.assert_allclose(got.node[1], 0.15)
    np.testing.assert_allclose(got.node[2], 0.4)


def test_values_by_position_merge_prefixes_of_one_length() -> None:
    """Two forks after two actions each: by prefix 1 and 0, by position the mean over all leaves below both."""
    tree = Tree("t", [0])
    for rewards in ((1.0, 1.0), (0.0, 0.0, 0.0, 0.0)):
        fork = tree.extend(0, [len(rewards), 1], status="done")
        for i, reward in enumerate(rewards):
            tree.extend(fork, [i], status="done", scores={"reward": reward})
    by = {name: load_credit("node_delta", by=name)(table([tree])).node for name in ("prefix", "position")}
    forks = [1, 4]
    assert by["prefix"][forks] == pytest.approx([1 - 1 / 3, 0 - 1 / 3])
    assert by["position"][forks] == pytest.approx([0.0, 0.0])
    assert by["position"][2] == pytest.approx(1 - 1 / 3), "a leaf keeps its own outcome"
