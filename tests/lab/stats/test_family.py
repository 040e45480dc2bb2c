"""A family of comparisons: exact where it is one, error rates of each verdict, variances against a reference."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rolltree.compare.stats import (
    Asked,
    Interval,
    benjamini_hochberg,
    bootstrap_interval,
    corrected,
    judge,
    nested_interval,
    t_interval,
)  # fmt: skip
from rolltree.compare.stats.moderated import ENOUGH, variance_prior
from rolltree.compare.stats.paired import StatsError


def test_one_comparison_is_the_plain_t_interval():
    d = (0.1, 0.3, 0.2, 0.5)
    (found,) = corrected([Asked(d)])
    plain = t_interval(d)
    assert (found.effect.low, found.effect.high) == pytest.approx((plain.low, plain.high))
    assert found.p == pytest.approx(scipy_stats.ttest_1samp(d, 0, alternative="greater").pvalue)
    assert found.p_holm == found.p_bh == found.p
    assert found.effect.method == "paired t"


def test_lower_is_the_mirror_of_higher():
    up, down = corrected([Asked((0.1, 0.3, 0.2))])[0], corrected([Asked((-0.1, -0.3, -0.2), "lower")])[0]
    assert (down.effect.low, down.effect.high) == pytest.approx((-up.effect.high, -up.effect.low))
    assert down.p == up.p


def test_intervals_say_what_holm_says_of_the_hypothesis_that_holds_rejects():
    rng = np.random.default_rng(3)
    for _ in range(200):
        asked = [Asked(tuple(rng.normal(rng.choice([0, 1.0]), 1, 5)), least=0.5) for _ in range(5)]
        for found in corrected(asked):
            assert (found.effect.low > 0) == (found.p_holm < 0.025)


@pytest.mark.parametrize("least", [0.0, 0.8])
def test_wrong_verdicts_of_a_family_with_claims_of_a_size(least):
    """Half of ten comparisons have no effect, half exactly the claimed one: any wrong verdict is rare, also where the
    true effects are found and Holm's procedure goes on to larger levels."""
    rng, trials, false_holds, false_falls = np.random.default_rng(4), 400, 0, 0
    truth = [0.0] * 5 + [least] * 5
    for _ in range(trials):
        shared = rng.standard_normal(8)
        asked = [Asked(tuple(t + rng.normal(0, 0.25, 8) + 0.2 * shared), least=least, pool="x") for t in truth]
        said = [judge(found.effect, least=least) for found in corrected(asked)]
        false_holds += any(o == "holds" for o, t in zip(said, truth, strict=True) if t <= 0)
        false_falls += any(
            o in ("worse", "claim excluded", "no effect above x")
            for o, t in zip(said, truth, strict=True) if t >= least
        )  # fmt: skip
    bound = 0.025 + 3.5 * (0.025 * 0.975 / trials) ** 0.5
    assert false_holds / trials < bound
    assert false_falls / trials < bound


def test_equality_is_two_one_sided_tests():
    near, far = corrected(
        [Asked((0.01, -0.01, 0.0, 0.005), "equal", 0.05), Asked((0.2, 0.21, 0.19, 0.2), "equal", 0.05)]
    )
    assert judge(near.effect, direction="equal", least=0.05) == "holds"
    assert judge(far.effect, direction="equal", least=0.05) == "claim excluded"
    assert near.p < 0.01
    assert far.p > 0.99


def test_benjamini_hochberg_equals_a_reference():
    rng = np.random.default_rng(1)
    for _ in range(20):
        p = (rng.random(rng.integers(1, 9)) ** 2).tolist()
        assert benjamini_hochberg(p) == pytest.approx(scipy_stats.false_discovery_control(p))
    assert benjamini_hochberg([]) == []


def test_the_prior_of_variances_is_recovered():
    """Variances drawn as s₀² d₀/χ²(d₀), each seen through a χ²(d): Smyth's model itself."""
    rng, d0, s0, d = np.random.default_rng(2), 6.0, 2.0, 5
    true = s0 * d0 / rng.chisquare(d0, 20_000)
    prior = variance_prior((true * rng.chisquare(d, 20_000) / d).tolist(), [d] * 20_000)
    assert prior.df == pytest.approx(d0, rel=0.1)
    assert prior.variance == pytest.approx(s0, rel=0.05)
    assert prior.moderate(4.0, d) == pytest.approx(
        ((prior.df * prior.variance + d * 4.0) / (prior.df + d), prior.df + d)
    )


def test_equal_variances_are_pooled_and_few_are_left_alone():
    prior = variance_prior([1.0] * 8, [4] * 8)
    assert np.isinf(prior.df)
    assert prior.moderate(3.0, 4)[1] == 32
    assert variance_prior([1.0] * (ENOUGH - 1), [4] * (ENOUGH - 1)) is None
    assert variance_prior([0.0] * 8, [4] * 8) is None


def test_moderated_tests_keep_their_rate():
    rng, trials, wrong = np.random.default_rng(5), 300, 0
    for _ in range(trials):
        scale = rng.uniform(0.3, 2.0, 8)
        asked = [Asked(tuple(rng.normal(0, s, 6)), pool="points") for s in scale]
        wrong += any(judge(found.effect) == "holds" for found in corrected(asked))
    assert wrong / trials < 0.025 + 3.5 * (0.025 * 0.975 / trials) ** 0.5


def test_seeds_and_items_are_resampled_together():
    rng = np.random.default_rng(6)
    seeds = 0.5 + 0.05 * rng.standard_normal(12)
    items = [np.clip(s + 0.4 * rng.standard_normal(40), -1, 2) for s in seeds]
    both = nested_interval(items)
    between = bootstrap_interval([float(np.mean(i)) for i in items])
    assert isinstance(both, Interval)
    assert both.estimate == pytest.approx(np.mean([np.mean(i) for i in items]))
    assert both.high - both.low > between.high - between.low
    same = nested_interval([[0.5, 0.5]] * 4)
    assert (same.low, same.high) == (0.5, 0.5)
    with pytest.raises(StatsError, match="no seeds"):
        nested_interval([])


def test_seeds_and_items_against_all_resamples_counted():
    """Two seeds with two items each: 2² draws of seeds times 2² of items in either, all equally likely."""
    items = [[0.0, 1.0], [0.25, 0.75]]
    means = [[(g[a] + g[b]) / 2 for a in (0, 1) for b in (0, 1)] for g in items]
    every = [
        ((x, y)[i] + (x, y)[j]) / 2 for x in means[0] for y in means[1] for i in (0, 1) for j in (0, 1)
    ]  # fmt: skip
    found = nested_interval(items, 0.8, draws=40_000)
    low, high = np.quantile(every, [0.1, 0.9])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)
