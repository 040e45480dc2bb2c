"""A share of successes with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean of shares with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(mean: float, units: float, z: float = 1.959964) -> Rate:
    """Wilson's score interval of a mean of shares over so many independent units.

    For shares per unit it is wider than need be, because p(1−p) bounds their variance; it is never empty at 0 or 1.
    """
    if units == 0:
        return Rate(math.nan, math.nan, math.nan)
    centre = (mean + z * z / (2 * units)) / (1 + z * z / units)
    half = z * math.sqrt(mean * (1 - mean) / units + z * z / (4 * units * units)) / (1 + z * z / units)
    return Rate(mean, max(0.0, centre - half), min(1.0, centre + half))


def difference(one: float, units: float, other: float, others: float, z: float = 1.959964) -> Rate:
    """The difference of two independent rates with the interval of Agresti and Caffo (2000).

    Each side is counted with one more success and one more failure. For two or three units a side it holds the truth
    where Newcombe's and Wald's intervals are too narrow; `units` may be effective numbers.
    """
    sides = [((rate * n + 1) / (n + 2), n + 2) for rate, n in ((one, units), (other, others))]
    middle = sides[0][0] - sides[1][0]
    half = z * math.sqrt(sum(p * (1 - p) / n for p, n in sides))
    return Rate(one - other, max(-1.0, middle - half), min(1.0, middle + half))
