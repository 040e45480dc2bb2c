"""Group and baseline estimators against numbers worked out by hand from their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit import partition
from rolltree.credit.advantage import CreditError
from rolltree.credit.baselines import BetaStore
from rolltree.credit.normalise import centred
from rolltree.credit.registry import load_credit
from rolltree.testing.forests import flat
from rolltree.tree.table import table


def leaf(name, rewards, lengths=None, **knobs):
    return load_credit(name, **knobs)(table([flat(rewards, lengths)])).leaf


def test_grpo_by_hand():
    # mean 0.5, std with ddof 1 of (1, 0, 0, 1) is sqrt(1/3)
    sigma = np.sqrt(1 / 3)
    np.testing.assert_allclose(leaf("grpo", [1, 0, 0, 1], eps=0.0), np.array([0.5, -0.5, -0.5, 0.5]) / sigma)
    np.testing.assert_allclose(leaf("grpo", [1, 0, 0, 1], ddof=0, eps=0.0), [1, -1, -1, 1])
    np.testing.assert_allclose(leaf("grpo", [1, 0], ddof=0, eps=0.5)[0], 0.5 / (0.5 + 0.5))
    np.testing.assert_allclose(leaf("grpo", [1, 0], ddof=0, eps=0.75, place="inside")[0], 0.5 / 1.0)


@pytest.mark.papers("mc_grpo")
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "opo", "mc_grpo", "token_group", "pass_at_k", "nested",
                                  "reinforce_pp_baseline"])  # fmt: skip
def test_equal_rewards_and_groups_of_one_are_exactly_zero(name):
    # 0.1 · 3 / 3 is not 0.1 in floating point; a filter on "advantage is 0" must not depend on that.
    assert not leaf(name, [0.1] * 3).any()
    assert not leaf(name, [7.3]).any()


@pytest.mark.papers("mc_grpo")
def test_a_deviation_of_rounding_is_no_spread():
    """0.1 + 0.2 is not 0.3 in floating point: the MAD was 6e-17, and 1.03 became an advantage of 1030."""
    nearly = leaf("mc_grpo", [0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2, 1.33])
    np.testing.assert_allclose(nearly, leaf("mc_grpo", [0.3, 0.3, 0.3, 0.3, 1.33]), atol=1e-12)
    assert nearly[-1] == pytest.approx(1.03)
    # Nor where the median is 0, and so says no size: the last became an advantage of 1000.
    rest = 0.1 + 0.2 - 0.3
    assert leaf("mc_grpo", [0.0, 0.0, rest, rest, 1.0])[-1] == pytest.approx(1.0)
    # A spread that is small beside 1 and not beside the rewards is one.
    assert leaf("mc_grpo", [1e-12, 2e-12, 3e-12], eps=0.0).tolist() == pytest.approx([-1, 0, 1])


def test_singletons_follow_the_policy():
    tab = table([flat([3.0], id="a"), flat([1.0, 0.0], id="b")])
    assert load_credit("grpo", singleton="raw")(tab).leaf[0] == 3.0
    skipped = load_credit("grpo", singleton="skip")(tab)
    np.testing.assert_array_equal(skipped.counted, [False, True, True])


def test_dr_grpo_rloo_and_their_ratio():
    np.testing.assert_allclose(leaf("dr_grpo", [2, 0, 1]), [1, -1, 0])
    np.testing.assert_allclose(leaf("rloo", [2, 0, 1]), [2 - 0.5, 0 - 1.5, 1 - 1.0])
    np.testing.assert_allclose(leaf("rloo", [2, 0, 5, 1]), leaf("dr_grpo", [2, 0, 5, 1]) * 4 / 3)


def test_opo_weighs_by_length():
    np.testing.assert_allclose(leaf("opo", [1, 0], [1, 3]), [0.75, -0.25])
    assert not leaf("opo", [1, 0], [0, 3]).any()


def test_token_group_sums_to_zero_over_actions_and_falls_back():
    advantage = leaf("token_group", [1, 0, 0], [1, 3, 4])
    assert advantage @ [1, 3, 4] == pytest.approx(0, abs=1e-12)
    # mean 1/8, population std sqrt(7)/8
    assert advantage[0] == pytest.approx((7 / 8) / (np.sqrt(7) / 8), rel=1e-5)
    extreme = leaf("token_group", [1, 0, 0], [1, 50, 50])
    np.testing.assert_allclose(extreme, leaf("grpo", [1, 0, 0], ddof=0))


def test_reinforce_pp_whitens_over_tokens_or_leaves():
    got = leaf("reinforce_pp", [1, 0], [1, 3], ddof=0, eps=0.0)
    np.testing.assert_allclose(got, np.array([0.75, -0.25]) / np.sqrt(3 / 16))
    np.testing.assert_allclose(leaf("reinforce_pp", [1, 0], [1, 3], over="leaves", ddof=0, eps=0.0), [1, -1])


def test_reinforce_pp_baseline_keeps_the_natural_weight_of_prompts():
    tab = table([flat([1, 0], id="a"), flat([1, 0.9], id="b")])
    got = load_credit("reinforce_pp_baseline", ddof=0, eps=0.0)(tab).leaf
    assert got[0] / got[2] == pytest.approx(0.5 / 0.05)


def test_pass_at_k_by_enumeration():
    from itertools import combinations

    rewards = np.array([1, 0, 0, 0, 1, 0.0])
    for k in (1, 2, 3):
        sets = list(combinations(range(6), k))
        won = np.array([rewards[list(s)].max() for s in sets])
        by_hand = [np.mean([w for s, w in zip(sets, won, strict=True) if i in s]) - won.mean() for i in range(6)]
        np.testing.assert_allclose(leaf("pass_at_k", rewards, k=k), np.array(by_hand) / won.std())
    np.testing.assert_allclose(leaf("pass_at_k", rewards, k=1), leaf("grpo", rewards, ddof=0, eps=0.0))
    assert not leaf("pass_at_k", rewards, k=5).any()
    assert not leaf("pass_at_k", [1, 0], k=3).any()


@pytest.mark.papers("mc_grpo")
def test_median_centre_drops_one_pivot_and_stays_finite_on_binary_rewards():
    tab = table([flat([0, 1.5, 2, 2, 0])])
    got = load_credit("mc_grpo", eps=0.0)(tab)
    # sorted 0 0 1.5 2 2: median 1.5, deviations 1.5 0 .5 .5 1.5: MAD 0.5
    np.testing.assert_allclose(got.leaf, [-3, 0, 1, 1, -3])
    np.testing.assert_array_equal(got.counted, [True, False, True, True, True])
    binary = table([flat([0, 0, 0, 0, 1])])
    np.testing.assert_allclose(load_credit("mc_grpo")(binary).leaf, [0, 0, 0, 0, 1])
    assert load_credit("mc_grpo", flat="eps")(binary).leaf[-1] == pytest.approx(1000)
    assert load_credit("mc_grpo", eps=0.0)(table([flat([0, 1, 2, 3])])).leaf[1] == 0  # lower middle, as torch


@pytest.mark.papers("remax")
def test_remax_and_priors():
    tab = table([flat([1, 0, 1])])
    with pytest.raises(CreditError, match=r"node 0 of tree 't0' has no 'greedy_reward'"):
        load_credit("remax")(tab)
    tab.nodes[0].scores.update(greedy_reward=1.0, prior=0.5)
    np.testing.assert_allclose(load_credit("remax")(tab).leaf, [0, -1, 0])
    np.testing.assert_allclose(load_credit("prior_baseline", whiten=False)(tab).leaf, [0.5, -0.5, 0.5])
    # (0.5 - 2/3)^2 < 0.25/3: within noise, the prior is trusted fully
    np.testing.assert_allclose(load_credit("prior_fused")(tab).leaf, [0.5, -0.5, 0.5])
    tab.nodes[0].scores["prior"] = 0.0  # no noise under the prior: the sample decides
    np.testing.assert_allclose(load_credit("prior_fused")(tab).leaf, np.array([1, 0, 1]) - 2 / 3)


def test_optimal_baseline_by_hand():
    tab = table([flat([1, 0], [1, 2])])
    tab.nodes[1].notes["energy"], tab.nodes[2].notes["energy"] = np.array([2.0]), np.array([1.0, 3.0])
    got = load_credit("optimal_baseline")(tab)
    total = got.leaf[[0, 1, 1]] + got.action[2:]
    # position 0: (2·1 + 1·0)/3; position 1: only the second response
    np.testing.assert_allclose(total, [1 - 2 / 3, -2 / 3, 0], atol=1e-12)
    whole = load_credit("optimal_baseline", level="sequence")(tab)
    np.testing.assert_allclose(whole.leaf, [1 - 2 / 6, -2 / 6])


def test_groups_by_item_join_trees():
    tab = table([flat([1], id="a", item="q"), flat([0], id="b", item="q"), flat([5], id="c", item="r")])
    np.testing.assert_allclose(load_credit("dr_grpo", by="item")(tab).leaf, [0.5, -0.5, 0])
    np.testing.assert_allclose(load_credit("dr_grpo", by="batch")(tab).leaf, [-1, -2, 3])


def test_median_kinds_on_even_counts():
    group, values = np.zeros(4, np.int64), np.array([3.0, 0, 1, 2])
    assert partition.median(values, group, "lower")[0] == 1
    assert partition.median(values, group, "mean")[0] == 1.5
    np.testing.assert_allclose(centred(values, np.array([0, -1, 0, 0]), "mean"), [1, 0, -1, 0])


def test_beta_store_reads_before_it_learns_and_forgets_monotonically():
    store = BetaStore()
    assert store.value("q") == 0.5
    store.update("q", success=True)
    assert store.value("q") > 0.5
    swept = []
    for moved in (0, 0.002, 0.01, 1.0):
        store.moves = []
        store.move(moved)
        swept.append(store.forgetting)
    assert swept == sorted(swept, reverse=True)
    assert swept[0] == store.most
    assert swept[2] == swept[3] == pytest.approx(store.least)
    store.moves = []
    for _ in range(500):
        store.update("q", success=True)
    assert sum(store.counts["q"]) == pytest.approx(1 / (1 - store.most), rel=1e-3)


def test_the_best_and_the_worst_share_their_places():
    tab = table([flat([0.2, 1, 0.5, 1, None]), flat([1, 1], id="t1"), flat([3], id="t2")])
    got = load_credit("extremes")(tab)
    np.testing.assert_array_equal(got.leaf, [-1, 1, 0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(got.counted, [True, True, False, True, False, False, False, False])
    np.testing.assert_array_equal(load_credit("raw")(tab).leaf, [0.2, 1, 0.5, 1, 0, 1, 1, 3])
