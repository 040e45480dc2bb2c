from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.fold import expand, fold, leaf_weights, write
from rolltree.testing.forests import flat, grown
from rolltree.tree import Tree
from rolltree.tree.table import table

shapes = st.recursive(st.just([]), lambda s: st.lists(s, min_size=1, max_size=4), max_leaves=12).filter(bool)


def brute(tab, advantage, weights, multiplicity="per_leaf"):
    """Every path walked node by node, action by action."""
    gain, loss, weight, seen = (np.zeros(tab.actions) for _ in range(4))
    for leaf, row in enumerate(tab.leaf):
        counted = tab.live[leaf] and (advantage.counted is None or advantage.counted[leaf]) and weights[leaf] > 0
        tree = tab.trees[tab.tree[row]]
        for node in tree.path(tab.nodes[row]) if counted else ():
            n = tab.nodes.index(node)
            for k in range(len(node)):
                if not node.trainable or (node.keep is not None and not node.keep[k]):
                    continue
                a = tab.start[n] + k
                value = 0.0 if advantage.leaf is None else advantage.leaf[leaf]
                value += 0.0 if advantage.node is None else advantage.node[n]
                value *= 1.0 if advantage.factor is None else advantage.factor[a]
                value += 0.0 if advantage.action is None else advantage.action[a]
                gain[a] += weights[leaf] * max(value, 0)
                loss[a] += weights[leaf] * min(value, 0)
                weight[a] += weights[leaf]
                seen[a] += 1
    seen[seen == 0] = 1
    by = {"per_leaf": 1, "once": seen, "sqrt": np.sqrt(seen)}[multiplicity]
    return gain / by, loss / by, weight / by


def some_advantage(tab, rng, terms):
    counted = rng.random(len(tab.leaf)) < 0.8
    return Advantage(
        leaf=rng.normal(size=len(tab.leaf)) if "leaf" in terms else None,
        node=rng.normal(size=len(tab.nodes)) if "node" in terms else None,
        action=rng.normal(size=tab.actions) if "action" in terms else None,
        factor=rng.random(tab.actions) if "factor" in terms else None,
        counted=counted if "counted" in terms else None,
    )


@settings(max_examples=120, deadline=None)
@given(
    st.lists(shapes, min_size=1, max_size=3), st.integers(0, 99),
    st.sets(st.sampled_from(["leaf", "node", "action", "factor", "counted"])),
    st.sampled_from(["per_leaf", "once", "sqrt"]), st.sampled_from(["token", "sequence", "group", "fixed"]),
)  # fmt: skip
def test_fold_equals_walking_every_path(forest, seed, terms, multiplicity, averaging):
    rng = np.random.default_rng(seed)
    tab = table([grown(s, rng, id=f"t{i}") for i, s in enumerate(forest)])
    for i in tab.leaf[rng.random(len(tab.leaf)) < 0.2]:
        tab.nodes[i].status = "pruned"
    advantage = some_advantage(tab, rng, terms)
    weights = leaf_weights(tab, averaging, counted=advantage.counted, fixed_length=7)
    folded = fold(tab, advantage, weights, multiplicity)
    for ours, theirs in zip(
        (folded.gain, folded.loss, folded.weight), brute(tab, advantage, weights, multiplicity), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-14)
    assert not folded.weight[~tab.loss_mask].any()
    if averaging != "fixed" and weights.any() and multiplicity == "per_leaf":
        assert folded.weight.sum() == pytest.approx(1.0)
    paths = expand(tab, advantage, weights, multiplicity)
    per_entry = paths.weight[paths.path] * (1.0 if paths.share is None else paths.share)
    gain = np.bincount(paths.index, per_entry * np.maximum(paths.advantage, 0), minlength=tab.actions)
    loss = np.bincount(paths.index, per_entry * np.minimum(paths.advantage, 0), minlength=tab.actions)
    np.testing.assert_allclose(gain, folded.gain, atol=1e-14)
    np.testing.assert_allclose(loss, folded.loss, atol=1e-14)
    np.testing.assert_allclose(np.bincount(paths.index, per_entry, minlength=tab.actions), folded.weight, atol=1e-14)
    for leaf, p in zip(paths.leaf, range(len(paths.leaf)), strict=True):
        walked = np.concatenate([tab.start[tab.nodes.index(n)] + np.arange(len(n))
                                 for n in tab.trees[tab.leaf_tree[leaf]].path(tab.nodes[tab.leaf[leaf]])])  # fmt: skip
        np.testing.assert_array_equal(paths.index[paths.path == p], walked[tab.loss_mask[walked]])


def test_averages_by_hand():
    tab = table([flat([1, 0], [2, 6], id="a"), flat([1], [4], id="b"), flat([None, 1], [5, 0], id="c")])
    np.testing.assert_allclose(leaf_weights(tab, "token"), [1 / 12, 1 / 12, 1 / 12, 0, 0])
    np.testing.assert_allclose(leaf_weights(tab, "sequence"), [1 / 6, 1 / 18, 1 / 12, 0, 0])
    np.testing.assert_allclose(leaf_weights(tab, "group"), [1 / 16, 1 / 16, 1 / 8, 0, 0])
    np.testing.assert_allclose(leaf_weights(tab, "fixed", fixed_length=10), [1 / 40, 1 / 40, 1 / 40, 0, 0])


def test_a_leaf_that_does_not_count_may_hold_anything():
    tab = table([flat([1, 0, 1])])
    advantage = Advantage(leaf=np.array([1.0, np.nan, -1.0]), counted=np.array([True, False, True]))
    folded = fold(tab, advantage, leaf_weights(tab, "token", counted=advantage.counted))
    assert np.isfinite(folded.gain).all()
    assert not folded.weight[5:8].any()


@pytest.mark.parametrize("term", ["leaf", "node", "action", "factor"])
def test_a_bad_number_names_its_node(term):
    tab = table([flat([1, 0])])
    size = {"leaf": 2, "node": 3, "action": 8, "factor": 8}[term]
    values = np.ones(size)
    values[-1] = np.nan
    with pytest.raises(CreditError, match=r"node 2 of tree 't0'"):
        fold(tab, Advantage(**{term: values}), leaf_weights(tab, "token"))
    with pytest.raises(CreditError, match="shape"):
        fold(tab, Advantage(**{term: values[1:]}), leaf_weights(tab, "token"))


def test_a_negative_factor_is_refused():
    tab = table([flat([1, 0])])
    with pytest.raises(CreditError, match="negative"):
        fold(tab, Advantage(leaf=np.ones(2), factor=-np.ones(8)), leaf_weights(tab, "token"))


def test_write_lays_the_channels_on_trained_nodes():
    tree = flat([1, 0])
    tab = table([tree])
    write(tab, fold(tab, Advantage(leaf=np.array([1.0, -1.0])), leaf_weights(tab, "token")))
    assert tree[0].gain is None
    np.testing.assert_allclose(tree[1].gain, np.full(3, 1 / 6), rtol=1e-6)
    np.testing.assert_allclose(tree[2].loss, np.full(3, -1 / 6), rtol=1e-6)
    np.testing.assert_allclose(tree[1].weight, np.full(3, 1 / 6), rtol=1e-6)
    assert tree[1].gain.dtype == np.float32


def test_an_empty_forest_folds():
    tab = table([])
    assert fold(tab, Advantage(), leaf_weights(tab, "token")).gain.shape == (0,)


def test_attempts_are_sequences_of_their_own_each_once():
    """A drafts, two answers with it in sight, one of them in two runs: three attempts, whatever leaves stand below."""
    tree = Tree("t", [0])
    draft = tree.extend(tree.root, [1, 2], status="done", scores={"reward": 0.0})
    for actions, reward in (([3], 1.0), ([4, 5, 6], 0.0)):
        asked = tree.extend(draft, [7], role="prompt")
        here = tree.extend(asked, actions, status="done", scores={"reward": reward})
        if len(actions) > 1:
            tree.cut(here, 1)
    tab = table([tree])
    node = np.arange(len(tab.nodes), dtype=float)
    made = expand(tab, Advantage(node=node), leaf_weights(tab, "sequence"), "once", "attempt")
    spelled = [tab.flat("actions")[made.index[made.path == p]].tolist() for p in range(len(made.weight))]
    assert sorted(spelled) == [[1, 2], [3], [4, 5, 6]]
    folded = fold(tab, Advantage(node=node), leaf_weights(tab, "sequence"), "once")
    gain = np.bincount(made.index, made.weight[made.path] * made.advantage, minlength=tab.actions)
    np.testing.assert_allclose(gain, folded.gain)
