"""Statistics of comparisons, numpy only: intervals, paired tests, several comparisons, targets, verdicts."""

from rolltree.lab.stats.interval import Interval, bootstrap_interval, clustered_interval, t_interval
from rolltree.lab.stats.paired import differences, paired_interval, sign_flip_test, t_test
from rolltree.lab.stats.several import holm, holm_alphas
from rolltree.lab.stats.target import TargetReach, first_reach, median_reach, restricted
from rolltree.lab.stats.verdict import Direction, Outcome, StatedVerdict, describe, judge

__all__ = [
    "Direction",
    "Interval",
    "Outcome",
    "StatedVerdict",
    "TargetReach",
    "bootstrap_interval",
    "clustered_interval",
    "describe",
    "differences",
    "first_reach",
    "holm",
    "holm_alphas",
    "judge",
    "median_reach",
    "paired_interval",
    "restricted",
    "sign_flip_test",
    "t_interval",
    "t_test",
]
