"""pass@k against enumeration of every subset, and without bias."""

from itertools import combinations

import numpy as np
import pytest

from rolltree.lab.stats import pass_all_k, pass_at_k, pass_at_k_interval
from rolltree.lab.stats.error import StatsError


@pytest.mark.parametrize("n", [1, 4, 6])
def test_equals_the_share_of_subsets(n):
    for c in range(n + 1):
        marks = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(marks, k))
            assert pass_at_k(c, n, k)[0] == pytest.approx(np.mean([any(s) for s in subsets]))
            assert pass_all_k(c, n, k)[0] == pytest.approx(np.mean([all(s) for s in subsets]))


def test_unbiased_where_the_plug_in_is_not():
    rng, p, n, k = np.random.default_rng(0), 0.2, 8, 4
    c = rng.binomial(n, p, 40_000)
    truth = 1 - (1 - p) ** k
    assert pass_at_k(c, n, k).mean() == pytest.approx(truth, abs=0.008)
    assert abs((1 - (1 - c / n) ** k).mean() - truth) > 0.02


def test_large_counts_do_not_overflow():
    assert 0 < pass_at_k(1, 5000, 2500)[0] < 1


def test_interval_is_over_items():
    made = pass_at_k_interval([0, 4, 2, 1], [4, 4, 4, 4], 1)
    assert made.estimate == pytest.approx(7 / 16)
    assert made.n == 4
    assert made.low < made.estimate < made.high


def test_too_few_samples_are_named():
    with pytest.raises(StatsError, match=r"pass@8 needs at least 8 samples of every item, but one has 4"):
        pass_at_k([1, 1], [8, 4], 8)
    with pytest.raises(StatsError, match="between 0 and"):
        pass_at_k([5], [4], 1)
    with pytest.raises(StatsError, match="k of at least 1"):
        pass_at_k([1], [4], 0)
