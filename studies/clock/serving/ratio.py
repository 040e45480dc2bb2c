"""Ratios over seeds with their intervals, and a published figure beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.compare.stats.paired import t_interval


@dataclass(frozen=True, slots=True)
class Ratio:
    """A way over another, paired by seed: the geometric mean with its 95 % t interval of the logarithms."""

    what: str
    where: str
    value: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        if self.seeds < 2 or not math.isfinite(self.low):
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def over(what: str, where: str, mine: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The ratio of pairs of numbers above zero."""
    logs = np.log(np.asarray(mine, float)) - np.log(np.asarray(theirs, float))
    found = t_interval(logs)
    low, high = (found.low, found.high) if len(logs) > 1 else (found.estimate, found.estimate)
    return Ratio(what, where, math.exp(found.estimate), math.exp(low), math.exp(high), len(logs))
