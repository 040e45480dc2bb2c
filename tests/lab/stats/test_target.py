"""Cost to a target with runs that never reach it."""

import numpy as np
import pytest

from rolltree.compare.stats import TargetReach, first_reach, median_reach, restricted
from rolltree.compare.stats.paired import StatsError


def test_crossing_lies_on_the_line_between_measurements():
    assert first_reach([0, 10, 20], [0.0, 0.4, 0.8], 0.6) == TargetReach(15.0, True)
    assert first_reach([5, 10], [0.7, 0.2], 0.6) == TargetReach(5.0, True)
    assert first_reach([0, 10], [0.1, 0.5], 0.6) == TargetReach(10.0, False)


def test_median_waits_for_half_of_the_runs():
    done, cut = [TargetReach(3, True), TargetReach(5, True)], [TargetReach(9, False), TargetReach(9, False)]
    assert median_reach([*done, cut[0]]) == 5
    assert median_reach([*done, *cut]) == 5
    assert median_reach([done[0], *cut]) is None


def test_a_run_cut_early_counts_only_while_it_was_watched():
    """Kaplan-Meier: of the two still watched after 2, one reaches at 4 and halves what is left."""
    assert median_reach([TargetReach(2, False), TargetReach(4, True), TargetReach(6, True)]) == 4
    assert median_reach([TargetReach(2, False), TargetReach(2, False), TargetReach(4, True)]) == 4


def test_kaplan_meier_median_is_near_the_truth_under_censoring():
    rng = np.random.default_rng(0)
    truth, limit = rng.exponential(10, 4000), rng.uniform(5, 40, 4000)
    runs = [TargetReach(min(t, c), bool(t <= c)) for t, c in zip(truth, limit, strict=True)]
    assert median_reach(runs) == pytest.approx(10 * np.log(2), rel=0.06)


def test_restricted_cost_counts_the_horizon_for_runs_that_never_got_there():
    assert restricted([TargetReach(3, True), TargetReach(12, True), TargetReach(10, False)], 10) == [3, 10, 10]
    with pytest.raises(StatsError, match="watched only up to 4"):
        restricted([TargetReach(4, False)], 10)


def test_an_empty_curve_is_named():
    with pytest.raises(StatsError, match="got 0 and 0"):
        first_reach([], [], 0.5)
