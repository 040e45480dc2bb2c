"""Looks spend what they are given: known boundaries, simulated rates, Holm's procedure at every look."""

import numpy as np
import pytest
from scipy.stats import norm

from rolltree.compare.stats.paired import StatsError
from studies.lab.sequential import look_levels, sequential_holm


def test_levels_are_those_of_the_published_boundary():
    """Lan and DeMets's O'Brien-Fleming-type boundary for five equal looks at a two-sided 5 %."""
    bounds = norm.isf(look_levels((4, 8, 12, 16, 20), 0.025))
    assert bounds == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=0.01)
    assert look_levels((10,), 0.025) == pytest.approx((0.025,), rel=1e-3)


def test_looks_together_err_as_seldom_as_one_test():
    rng, looks, trials = np.random.default_rng(0), (8, 14, 20), 20_000
    sums = np.cumsum(rng.standard_normal((trials, looks[-1])), 1)
    crossed = np.zeros(trials, bool)
    for n, level in zip(looks, look_levels(looks, 0.025), strict=True):
        crossed |= sums[:, n - 1] / n**0.5 > norm.isf(level)
    assert crossed.mean() == pytest.approx(0.025, abs=3.5 * (0.025 * 0.975 / trials) ** 0.5)


def test_what_is_rejected_leaves_its_level_to_the_others():
    looks = (8, 14, 20)
    half, whole = look_levels(looks, 0.0125)[2], look_levels(looks, 0.025)[2]
    between = (half + whole) / 2
    assert sequential_holm([0.5, between], [False, False], 2, looks) == [False, False]
    assert sequential_holm([1e-9, between], [False, False], 2, looks) == [True, True]
    assert sequential_holm([0.9, between], [True, False], 2, looks) == [True, True], "rejected stays rejected"
    assert sequential_holm([1e-9, between], [False, False], 0, looks) == [True, False], "early looks have little"


@pytest.mark.parametrize("looks", [(), (8, 8), (14, 8), (1, 8)])
def test_looks_that_make_no_sense_are_named(looks):
    with pytest.raises(StatsError, match="rising numbers from 2 on"):
        look_levels(looks, 0.025)
