"""Statistics of comparisons, numpy only: intervals, paired tests, several comparisons, targets, verdicts."""

from rolltree.compare.stats.family import Asked, Corrected, corrected
from rolltree.compare.stats.paired import (
    Interval,
    benjamini_hochberg,
    bootstrap_interval,
    clustered_interval,
    differences,
    holm,
    holm_alphas,
    nested_interval,
    paired_interval,
    sign_flip_test,
    t_interval,
    t_test,
)
from rolltree.compare.stats.target import TargetReach, first_reach, median_reach, restricted
from rolltree.compare.stats.verdict import Direction, Outcome, StatedVerdict, describe, judge, rule_table

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
