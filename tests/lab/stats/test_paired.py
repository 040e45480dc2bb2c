"""Paired tests: exact where they can be, right error rates under the null, and the gain of pairing."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rolltree.compare.stats import holm, holm_alphas, paired_interval, sign_flip_test, t_test
from rolltree.compare.stats.paired import StatsError


def test_t_test_equals_a_reference():
    rng = np.random.default_rng(0)
    for n in (2, 5, 12):
        a, b = rng.random(n), rng.random(n)
        assert t_test(a, b) == pytest.approx(scipy_stats.ttest_rel(a, b).pvalue, rel=1e-8)


def test_t_test_without_spread():
    assert t_test([1, 2, 3], [1, 2, 3]) == 1.0
    assert t_test([2, 3, 4], [1, 2, 3]) == 0.0
    assert t_test([2], [1]) == 1.0


def test_sign_flip_counts_all_patterns():
    assert sign_flip_test([1, 2, 3, 4, 5], [0] * 5) == 2 / 32
    assert sign_flip_test([1, -1], [0, 0]) == 1.0
    equal = scipy_stats.permutation_test(
        (np.array([0.3, -0.1, 0.4, 0.2, 0.7, -0.2]),), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_test([0.3, -0.1, 0.4, 0.2, 0.7, -0.2], [0] * 6) == pytest.approx(equal.pvalue)


def test_drawn_and_counted_sign_flips_agree():
    rng = np.random.default_rng(5)
    d = rng.standard_normal(15) + 0.5
    assert sign_flip_test(d, np.zeros(15)) == pytest.approx(
        scipy_stats.permutation_test(
            (d,), np.mean, permutation_type="samples", n_resamples=40_000, rng=np.random.default_rng(6)
        ).pvalue,
        abs=0.01,
    )


@pytest.mark.parametrize("test", [t_test, sign_flip_test])
def test_false_alarms_are_as_rare_as_stated(test):
    rng, trials = np.random.default_rng(7), 1200
    shared = rng.standard_normal((trials, 7))
    alarms = sum(
        test(s + 0.2 * rng.standard_normal(7), s + 0.2 * rng.standard_normal(7)) <= 0.05 for s in shared
    )  # fmt: skip
    assert alarms / trials < 0.05 + 3.5 * (0.05 * 0.95 / trials) ** 0.5


def test_pairing_removes_what_the_seeds_share():
    rng = np.random.default_rng(8)
    seeds = 3 * rng.standard_normal(6)
    a, b = seeds + 0.5 + 0.1 * rng.standard_normal(6), seeds + 0.1 * rng.standard_normal(6)
    made = paired_interval(a, b)
    assert 0.5 in made
    assert made.low > 0
    assert made.method == "paired t"


def test_holm_textbook():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_holm_alphas_decide_like_holm():
    rng = np.random.default_rng(9)
    for _ in range(300):
        p = (rng.random(rng.integers(1, 6)) ** 3).tolist()
        assert [x <= a for x, a in zip(p, holm_alphas(p), strict=True)] == [x <= 0.05 for x in holm(p)]


def test_family_wise_error_of_intervals_at_holm_alphas():
    """Four recipes that do nothing against one baseline: any of the four 'differs' in at most 5 % of studies."""
    rng, trials, wrong = np.random.default_rng(10), 500, 0
    for _ in range(trials):
        base = rng.standard_normal(5)
        arms = [rng.standard_normal(5) for _ in range(4)]
        alphas = holm_alphas([t_test(a, base) for a in arms])
        wrong += any(
            0 not in paired_interval(a, base, 1 - alpha) for a, alpha in zip(arms, alphas, strict=True)
        )  # fmt: skip
    assert wrong / trials < 0.05 + 3.5 * (0.05 * 0.95 / trials) ** 0.5


def test_bad_input_is_named():
    with pytest.raises(StatsError, match="same seeds on both sides, got 2 and 3"):
        t_test([1, 2], [1, 2, 3])
    with pytest.raises(StatsError, match="unknown interval method 'z'"):
        paired_interval([1, 2], [1, 2], method="z")
