"""Intervals hold the truth as often as they say, on simulated runs with a known mean."""

import numpy as np
import pytest

from rolltree.compare.stats import bootstrap_interval, clustered_interval, t_interval
from rolltree.compare.stats.paired import StatsError, t_cdf, t_quantile

TRIALS = 1500


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_t_interval_of_five_seeds_covers_as_stated(level):
    rng = np.random.default_rng(1)
    hits = sum(0.3 in t_interval(0.3 + 0.1 * rng.standard_normal(5), level) for _ in range(TRIALS))
    assert hits / TRIALS == pytest.approx(level, abs=3.5 * (level * (1 - level) / TRIALS) ** 0.5)


def test_bootstrap_covers_for_many_skewed_units():
    rng = np.random.default_rng(2)
    hits = sum(1.0 in bootstrap_interval(rng.exponential(1.0, 120), 0.9, draws=400, seed=i) for i in range(500))
    assert 0.85 < hits / 500 < 0.94


def test_clusters_are_resampled_whole():
    """Eight samples of one item share its difficulty: ignoring that would cover far too seldom."""
    rng, items, each = np.random.default_rng(3), 40, 8
    labels = np.repeat(np.arange(items), each).tolist()
    clustered = naive = 0
    for i in range(300):
        p = rng.beta(0.4, 0.4, items)
        right = (rng.random((items, each)) < p[:, None]).astype(float).ravel()
        clustered += 0.5 in clustered_interval(right, labels, 0.9, draws=300, seed=i)
        naive += 0.5 in bootstrap_interval(right, 0.9, draws=300, seed=i)
    assert 0.84 < clustered / 300 < 0.96
    assert naive / 300 < 0.7


def test_clusters_may_differ_in_size_and_the_estimate_stays_the_mean():
    made = clustered_interval([1, 1, 1, 0], ["a", "a", "a", "b"], 0.9, draws=500)
    assert made.estimate == 0.75
    assert (made.low, made.high, made.n) == (0.0, 1.0, 2)


def test_the_same_seed_gives_the_same_bootstrap():
    x = np.random.default_rng(0).random(30)
    assert bootstrap_interval(x, seed=4) == bootstrap_interval(x, seed=4)


def test_one_value_says_nothing_about_spread():
    made = t_interval([0.4])
    assert made.estimate == 0.4
    assert (made.low, made.high) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: t_interval([]), "no values"),
        (lambda: t_interval([0.1, float("nan")]), "value 1 of 2 is nan"),
        (lambda: t_interval([0.1, 0.2], 95), "0.95"),
        (lambda: clustered_interval([1, 2], ["a"]), "2 values"),
        (lambda: t_quantile(1.0, 3), "strictly between"),
        (lambda: t_cdf(1.0, 0), "degree of freedom"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(StatsError, match=says):
        call()
