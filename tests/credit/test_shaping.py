"""Shapings by hand: what they change, and that their neutral element is the base bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.credit.advantage import CreditError
from rolltree.credit.entropy_shaping import PART, confidence
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.needs import check_needs
from rolltree.credit.registry import load_credit
from rolltree.credit.selection import largest, most_spread, recompose
from rolltree.testing.forests import episodes, flat
from rolltree.tree.node import Top
from rolltree.tree.table import table

NEUTRAL = [
    ("entropy_scaled", {"a": 0.0}), ("entropy_confidence", {"a": 0.0}), ("entropy_bonus", {"a": 0.0, "base": "grpo"}),
    ("redistributed", {"beta": 0.0, "base": "grpo"}), ("ace", {"alpha": 0.0}), ("flawed_positive", {"penalty": 0.0}),
    ("novelty", {"weight": 0.0}), ("downsampled", {"leaves": 1.0, "tokens": 1.0}), ("recomposed", {"share": 1.0}),
]  # fmt: skip


@pytest.mark.papers("ace")
@pytest.mark.parametrize(("name", "knobs"), NEUTRAL)
def test_neutral_elements_are_the_base_bit_for_bit(name, knobs):
    tab = table(episodes(np.random.default_rng(0)))
    base = load_credit("grpo")(tab)
    got = load_credit(name, **knobs)(tab)
    weights = leaf_weights(tab, "token")
    for ours, theirs in zip(*(
        (f.gain, f.loss, f.weight) for f in (fold(tab, got, weights), fold(tab, base, weights))
    ), strict=True):  # fmt: skip
        np.testing.assert_array_equal(ours, theirs)


@given(st.integers(0, 99), st.lists(st.integers(3, 7), min_size=1, max_size=4), st.booleans())
def test_confidence_is_the_mean_probability_of_the_most_likely_in_whatever_order_they_are_listed(seed, widths, listed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, len(widths))
    tree = flat([1.0] * len(widths), lengths.tolist())
    said: list[list[float]] = []
    for leaf, width, n in zip(tree.leaves(), widths, lengths, strict=True):
        logp = -rng.gamma(2.0, 1.0, (n, width)).astype(np.float32)
        logp = -np.sort(-logp, axis=1) if listed else logp
        leaf.top = Top(np.tile(np.arange(width, dtype=np.int32), (n, 1)), logp)
        said += np.exp(-np.sort(-logp.astype(float), axis=1))[:, :3].mean(1).tolist()
    tab = table([tree])
    np.testing.assert_array_equal(confidence(tab, 3)[tab.loss_mask], said)
    assert (confidence(tab, 3)[~tab.loss_mask] == 1).all()


def test_confidence_reads_in_parts_and_leaves_the_forest_as_it_was():
    n = PART // 2 + 1
    tree = flat([1.0, 0.0, 1.0], [n] * 3)
    for i, leaf in enumerate(tree.leaves()):
        logp = np.full((n, 2), [-2.0 - i, -1.0], np.float32)
        leaf.top = Top(np.tile(np.arange(2, dtype=np.int32), (n, 1)), logp)
    tab = table([tree])
    np.testing.assert_array_equal(confidence(tab, 1)[tab.loss_mask], np.exp(-1.0))
    np.testing.assert_array_equal([leaf.top.logp[0, 0] for leaf in tree.leaves()], [-2, -3, -4])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.data())
def test_the_largest_are_those_of_a_full_sort(values, data):
    keep = data.draw(st.integers(1, len(values)))
    rank = np.array(data.draw(st.permutations(range(len(values)))))
    got = largest(np.array(values, float), keep, lambda i: rank[i])
    assert sorted(got) == sorted(np.lexsort((rank, -np.array(values)))[:keep])


def dressed(rewards, entropy, **scores):
    tree = flat(rewards, [len(h) for h in entropy])
    for i, (leaf, h) in enumerate(zip(tree.leaves(), entropy, strict=True)):
        leaf.entropy = np.array(h, np.float32)
        leaf.scores.update({k: float(v[i]) for k, v in scores.items()})
    return tree


def test_entropy_scaled_by_hand_and_never_flips_a_sign():
    tab = table([dressed([1, 0], [[0, 2], [0, 2]])])
    got = load_credit("entropy_scaled", base="dr_grpo", a=0.5)(tab)
    np.testing.assert_allclose(got.factor[2:], [0.5, 1.5, 0.5, 1.5])
    assert (load_credit("entropy_scaled", a=5.0)(tab).factor >= 0).all()


def test_entropy_response_by_hand_stops_at_zero():
    tab = table([dressed([1, 0, 0], [[1.0], [1.0], [7.0]])])
    got = load_credit("entropy_response", base="dr_grpo")(tab).leaf
    np.testing.assert_allclose(got, [(2 - 1 / 3) * 2 / 3, -(2 - 1 / 3) / 3, 0], atol=1e-12)
    clipped = load_credit("entropy_response", base="dr_grpo", clip=0.5)(tab).leaf
    np.testing.assert_allclose(clipped, [0.5, -1 / 3, -1 / 3])


def test_entropy_bonus_keeps_signs():
    tab = table([dressed([1, 0], [[0.5, 9.0], [0.5, 9.0]])])
    got = load_credit("entropy_bonus", base="dr_grpo", a=0.4)(tab)
    total = got.leaf.repeat(2) + got.action[2:]
    np.testing.assert_allclose(total, [0.7, 0.75, -0.3, -0.25], rtol=1e-6)


@pytest.mark.papers("ace")
def test_ace_by_hand():
    tree = flat([1, 0], [2, 2])
    for leaf, logp in zip(tree.leaves(), (-1.0, -0.5), strict=True):
        leaf.logp, leaf.notes["reference"] = np.full(2, logp, np.float32), np.full(2, -1.0)
    got = load_credit("ace", base="dr_grpo", alpha=2.0)(table([tree])).leaf
    np.testing.assert_allclose(got, [0.5, -0.5 * (1 + 2 * np.log1p(np.exp(1.0)))])
    mean = load_credit("ace", base="dr_grpo", alpha=2.0, length="mean")(table([tree])).leaf
    np.testing.assert_allclose(mean[1], -0.5 * (1 + 2 * np.log1p(np.exp(0.5))))
    tree.leaves()[1].logp[:] = 1000.0
    assert load_credit("ace", base="dr_grpo", cap=3.0)(table([tree])).leaf[1] == pytest.approx(-1.5)


@pytest.mark.papers("ace")
def test_ace_never_amplifies_an_error_that_is_better_than_its_group():
    tab = table([flat([0.4, 0.1, 0.1, 0.1], [2, 2, 2, 2])])
    base = load_credit("dr_grpo")(tab).leaf
    got = load_credit("ace", base="dr_grpo", alpha=2.0, correct=0.5, uniform=True)(tab).leaf
    assert got[0] == base[0] > 0
    np.testing.assert_allclose(got[1:], base[1:] * (1 + 2 * np.log(2)))


@pytest.mark.papers("ace")
def test_the_uniform_control_of_ace_knows_no_confidence():
    tab = table([flat([1, 0, 0], [2, 2, 1])])
    got = load_credit("ace", base="dr_grpo", alpha=2.0, uniform=True)
    assert got.needs == {"reward"}
    np.testing.assert_allclose(got(tab).leaf, [2 / 3, *[-(1 + 2 * np.log(2)) / 3] * 2])


def test_a_spliced_node_without_log_probs_is_refused_by_name():
    tree = flat([1, 0], [2, 2])
    for leaf in tree.leaves():
        leaf.logp = np.zeros(2, np.float32)
    tree.leaves()[1].logp = None
    with pytest.raises(CreditError, match=r"node 2 of tree 't0' has no finite 'logp'"):
        check_needs(table([tree]), load_credit("novelty"))


@pytest.mark.parametrize(("clean", "flawed", "wrong", "sign"), [(1, 2, 7, 1), (4, 2, 4, 0), (6, 2, 2, -1)])
def test_flawed_positives_turn_from_reward_to_punishment(clean, flawed, wrong, sign):
    tree = flat([1] * (clean + flawed) + [0] * wrong)
    for i, leaf in enumerate(tree.leaves()):
        leaf.scores["flawed"] = float(clean <= i < clean + flawed)
    got = load_credit("flawed_positive", base="dr_grpo")(table([tree])).leaf[clean]
    assert got == pytest.approx((wrong - clean) / (2 * (clean + flawed + wrong)), abs=1e-12)
    assert np.sign(round(got, 9)) == sign


def test_budget_reward_peaks_at_the_arm_and_the_arm_term_is_never_positive():
    credit = load_credit("budget", limit=100)
    length = np.arange(1.0, 101)
    for budget in (20.0, 60.0):
        reward = credit.rewards(length, np.full(100, budget))
        assert reward[int(budget) - 1] == pytest.approx(4 * np.cos(np.pi * budget / 200))
        assert (reward <= reward[int(budget) - 1] + 1e-12).all()
    tree = dressed([1, 1, 0, 1], [[0] * 20, [0] * 30, [0] * 5, [0] * 60], budget=[20, 20, 60, 60])
    tab = table([tree])
    with_arm, without = credit(tab).leaf, load_credit("budget", limit=100, arm=0.0)(tab).leaf
    assert (with_arm - without <= 1e-12).all()
    twice = load_credit("budget", limit=100, arm=2.0)(tab).leaf
    np.testing.assert_allclose(twice - without, 2 * (with_arm - without))


def test_novelty_by_hand():
    tree = flat([1, 1, 0], [2, 2, 2])
    for leaf, s in zip(tree.leaves(), (-1.0, -3.0, -2.0), strict=True):
        leaf.logp = np.full(2, s, np.float32)
    got = load_credit("novelty", base="dr_grpo", weight=0.1, clip=0.5)(table([tree])).leaf
    np.testing.assert_allclose(got, [1 / 3, 1 / 3 + 0.1 * (1 - np.exp(-1)), -2 / 3])
    capped = load_credit("novelty", base="dr_grpo", weight=100.0)(table([tree])).leaf
    assert capped[1] == pytest.approx(1.5 / 3)


def test_hinted_arms_by_hand():
    tree = flat([1, 0, 0, 0])
    hint = tree.extend(0, [8], role="hint", status="done")
    for r in (1.0, 1.0, 1.0, 0.0):
        tree.extend(hint, [1], status="done", scores={"reward": r})
    plain = load_credit("hinted", reweigh=False)(table([tree])).leaf
    got = load_credit("hinted")(table([tree])).leaf
    # unhinted failure 3/4, hinted 1/4: w = 1.5
    np.testing.assert_allclose(got / plain, [1.5, 1, 1, 1, 1 / 1.5, 1 / 1.5, 1 / 1.5, 1.5])


def test_pairwise_verdicts_skew_and_the_silent_reference():
    tree = flat([0] * 5)
    for leaf, won in zip(tree.leaves(), (None, 1.0, 1.0, 0.5, 0.0), strict=True):
        leaf.scores.update({"reference": 1.0} if won is None else {"versus": won})
    tab = table([tree])
    check_needs(tab, load_credit("pairwise"))
    got = load_credit("pairwise")(tab)
    np.testing.assert_array_equal(got.leaf, [0, 1, 1, -1, -1])
    np.testing.assert_array_equal(got.counted, [False, True, True, True, True])
    np.testing.assert_array_equal(load_credit("pairwise", split="zero")(tab).leaf, [0, 1, 1, 0, -1])
    tree.leaves()[3].scores["versus"] = tree.leaves()[4].scores["versus"] = 1.0
    assert not load_credit("pairwise")(table([tree])).counted.any()
    del tree.leaves()[2].scores["versus"]
    with pytest.raises(CreditError, match="node 3 of tree 't0' has no 'versus' score"):
        check_needs(table([tree]), load_credit("pairwise"))


def test_most_spread_is_the_best_subset_of_all():
    from itertools import combinations

    values = np.random.default_rng(0).normal(size=9)
    for keep in range(1, 9):
        best = max(np.var(values[list(c)]) for c in combinations(range(9), keep))
        assert np.var(values[most_spread(values, keep, np.arange(9))]) == pytest.approx(best)


def test_downsampling_keeps_the_share_and_the_size_of_the_step():
    tree = dressed([1, 0, 0, 0], [[1, 2, 3, 4]] * 4)
    got = load_credit("downsampled", base="dr_grpo", leaves=0.5, tokens=0.25)(table([tree]))
    assert got.counted.sum() == 2
    assert got.counted[0]
    assert np.count_nonzero(got.factor) == 2
    assert got.factor.max() == 4


def test_recompose_prefers_short_right_and_long_wrong():
    tree = flat([1, 1, 1, 0, 0], [5, 1, 3, 2, 9])
    np.testing.assert_array_equal(recompose(table([tree]), 0.5), [False, True, True, False, True])
    got = load_credit("recomposed", base="dr_grpo", share=0.5)(table([tree]))
    np.testing.assert_array_equal(got.leaf, load_credit("dr_grpo")(table([tree])).leaf)


def test_what_was_left_aside_is_taught_when_its_tree_comes_back():
    old, new = flat([1, 1, 0], [5, 1, 3], id="old"), flat([1, 1, 0], [5, 1, 3], id="new")
    late = flat([1, 1, 0], [5, 1, 3], id="late")
    for version, tree in ((3, old), (4, new), (3, late)):
        for leaf in tree.leaves():
            leaf.version = np.full(len(leaf), version, np.int32)
    old.root.scores["recalled"] = 1.0
    credit = load_credit("recomposed", base="dr_grpo", share=0.5, compensate=True)
    got = credit(table([old, new]))
    np.testing.assert_array_equal(got.counted, [True, False, False, False, True, True])
    np.testing.assert_array_equal(got.leaf[:3], got.leaf[3:])
    # A group that older weights wrote and that teaches for the first time did not come back.
    np.testing.assert_array_equal(credit(table([late, new])).counted, [False, True, True, False, True, True])


@pytest.mark.papers("ace")
def test_shapings_refuse_what_they_cannot_shape():
    tab = table(episodes(np.random.default_rng(0)))
    with pytest.raises(CreditError, match="one number per leaf"):
        load_credit("ace", base="node_delta")(tab)
    with pytest.raises(CreditError, match="before any per-action shaping"):
        load_credit("ace", base=load_credit("entropy_scaled"))(tab)


@pytest.mark.papers("himac", "hiper", "remax")
def test_needs_say_what_is_missing():
    with pytest.raises(CreditError, match="none of the 1 leaves is done"):
        check_needs(table([flat([None])]), load_credit("grpo"))
    for name, says in (("gigpo", "state_key"), ("gae", "value"), ("entropy_scaled", "entropy"),
                       ("set_shared", "answer"),
                       ("hiper", "spans|switch"), ("skill_chain", "task_reward"), ("remax", "greedy_reward"),
                       ("himac", "plan"), ("entropy_confidence", "entropy")):  # fmt: skip
        with pytest.raises(CreditError, match=rf"node \d+ of tree 't0'.*({says})|({says}).*node \d+ of tree 't0'"):
            check_needs(table([flat([1, 0])]), load_credit(name))
