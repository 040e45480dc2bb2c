from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.integrations.rows import Row, blank, credited, fit
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Parts
from rolltree.tree import Tree
from rolltree.tree.forest import assert_conserved


def parts(**other) -> Parts:
    return Parts("p", Independent(2), load_credit("dr_grpo"), load_objective("clipped"), **other)


def forked(rewards=(1.0, 0.0, 0.0)) -> Tree:
    """A shared trunk, an environment's word, two leaves; and one leaf by itself."""
    tree = Tree("t", [1, 2], item="i")
    distribution = {"sampling_logprob": np.full(2, -0.5, np.float32), "version": np.full(2, 4, np.int32)}
    trunk = tree.extend(tree.root, [3, 4], **distribution)
    env = tree.extend(trunk, [9], role="env")
    for above, reward in zip((env, env, tree.root), rewards, strict=True):
        leaf = tree.extend(above, [5, 6], **distribution)
        leaf.version = np.array([5, 5], np.int32)
        tree.close(leaf, "done", "eos", "")
        leaf.scores["reward"] = reward
    return tree


def test_every_leaf_is_a_row_with_the_advantage_of_its_own_path():
    tree = forked()
    (rows,) = credited(parts(), [tree], 8)
    assert [row.completion for row in rows] == [[3, 4, 9, 5, 6], [3, 4, 9, 5, 6], [5, 6]]
    assert [row.mask for row in rows] == [[1, 1, 0, 1, 1], [1, 1, 0, 1, 1], [1, 1]]
    np.testing.assert_allclose(rows[0].advantage, [2 / 3, 2 / 3, 0, 2 / 3, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(rows[2].advantage, [-1 / 3, -1 / 3], rtol=1e-6)
    assert rows[0].logp == [-0.5, -0.5, 0.0, -0.5, -0.5]
    assert [row.version for row in rows] == [4, 4, 5]
    assert [leaf.usage for leaf in tree.leaves()] == ["trained"] * 3


@pytest.mark.parametrize(("multiplicity", "share"), [("once", 2.0), ("sqrt", 2**0.5)])
def test_a_shared_action_teaches_as_often_as_the_recipe_says(multiplicity, share):
    (rows,) = credited(parts(multiplicity=multiplicity), [forked()], 8)
    np.testing.assert_allclose(rows[0].advantage, np.array([1 / share, 1 / share, 0, 1, 1]) * 2 / 3, rtol=1e-6)


def test_a_filtered_group_keeps_its_rewards_and_teaches_nothing():
    tree, other = forked((1.0, 1.0, 1.0)), forked()
    other.id = "other"
    idle, taught = credited(parts(filters=(Mixed(),)), [tree, other], 8)
    assert [row.reward for row in idle] == [1.0] * 3
    assert not any(row.loss_mask for row in idle)
    assert all(row.loss_mask for row in taught)
    account = assert_conserved([tree, other], settled=True)
    assert (account.trained, account.dropped) == (3, {"all outcomes are 1": 3})


def test_failed_and_pruned_leaves_are_no_rows():
    tree = forked()
    leaves = tree.leaves()
    leaves[0].status = "failed"
    tree.prune(leaves[1], "it repeats itself")
    (rows,) = credited(parts(), [tree], 8)
    assert [row.completion for row in rows] == [[5, 6]]


@given(teach=st.lists(st.booleans(), max_size=12), count=st.integers(1, 8), seed=st.integers(0, 999))
def test_a_subset_keeps_the_order_and_prefers_what_teaches(teach, count, seed):
    rows = [Row([0], [i], [0.0], [int(t)], [0.0], 1.0, 0, "i") for i, t in enumerate(teach)]
    chosen = fit(rows, count, seed)
    assert len(chosen) == min(count, len(rows))
    places = [row.completion[0] for row in chosen]
    assert places == sorted(set(places))
    assert sum(row.loss_mask for row in chosen) == min(count, sum(teach))


def test_every_leaf_has_the_same_chance_to_be_handed_over():
    rows = [Row([0], [i], [0.0], [1], [0.0], 1.0, 0, "i") for i in range(5)]
    counts = np.bincount([row.completion[0] for seed in range(2000) for row in fit(rows, 2, seed)], minlength=5)
    # 800 expected each with a standard deviation of 22.
    assert (np.abs(counts - 800) < 110).all()


def test_a_blank_row_is_masked_and_has_no_reward():
    row = blank([1, 2], 7, "i")
    assert (row.completion, row.mask, row.reward, row.loss_mask) == ([7], [0], None, False)
