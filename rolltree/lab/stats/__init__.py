"""Statistics of comparisons, numpy only: intervals, paired tests, several comparisons, targets, verdicts."""

from rolltree.lab.stats.family import Asked, Corrected, corrected
from rolltree.lab.stats.interval import Interval, bootstrap_interval, clustered_interval, nested_interval, t_interval
from rolltree.lab.stats.paired import differences, paired_interval, sign_flip_test, t_test
from rolltree.lab.stats.several import benjamini_hochberg, holm, holm_alphas
from rolltree.lab.stats.target import TargetReach, first_reach, median_reach, restricted
from rolltree.lab.stats.verdict import Direction, Outcome, StatedVerdict, describe, judge, rule_table

__all__ = [
    "Asked",
    "Corrected",
    "Direction",
    "Interval",
    "Outcome",
    "StatedVerdict",
    "TargetReach",
    "benjamini_hochberg",
    "bootstrap_interval",
    "clustered_interval",
    "corrected",
    "describe",
    "differences",
    "first_reach",
    "holm",
    "holm_alphas",
    "judge",
    "median_reach",
    "nested_interval",
    "paired_interval",
    "restricted",
    "rule_table",
    "sign_flip_test",
    "t_interval",
    "t_test",
]
