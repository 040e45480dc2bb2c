"""Values compared within their group: what they are centred on, and the unit that they are scaled by."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import CreditError
from rolltree.tree.table import Floats, Ints

Centre = Literal["mean", "median", "lower_median", "leave_one_out", "zero"]
"""The group's mean, median (mean of the middle two), lower middle value (torch), mean of the OTHERS, or nothing."""

Singleton = Literal["zero", "raw", "skip"]
"""A value alone in its group: advantage 0, its own value, or left out of the update."""


def baseline(values: Floats, group: Ints, centre: Centre, weights: Floats | None = None) -> Floats:
    """What to subtract from each value. `weights` (rows per trajectory, for instance) enter the mean only."""
    if centre == "zero":
        return np.zeros(len(values))
    if centre in ("median", "lower_median"):
        kind = "mean" if centre == "median" else "lower"
        return partition.spread(partition.median(values, group, kind), group)
    if centre == "mean":
        return partition.spread(partition.mean(values, group, weights), group)
    if centre == "leave_one_out":
        # Mean of the others = mean + (mean - value)/(n - 1); written so that equal values give exactly their value.
        n = partition.size(group)
        own = partition.spread(partition.mean(values, group), group)
        return own + np.divide(own - values, n - 1, out=np.zeros(len(values)), where=n > 1)
    raise CreditError(f"centre {centre!r} is unknown; choose mean, median, lower_median, leave_one_out or zero")


def centred(
    values: Floats, group: Ints, centre: Centre, singleton: Singleton = "zero", weights: Floats | None = None
) -> Floats:
    """Values minus their baseline; 0 outside groups; a value alone follows `singleton` ("skip" also gives 0)."""
    inside = np.where(group >= 0, values, 0.0)
    out = inside - baseline(inside, group, centre, weights)
    out[group < 0] = 0.0
    alone = partition.size(group) == 1
    if centre != "zero":
        out[alone] = inside[alone] if singleton == "raw" else 0.0
    return out


Ddof = Literal[0, 1]
"""What is taken from the count under a standard deviation: 1 for a sample's, 0 for a whole group's."""
Scale = Literal["none", "std", "mad"]
"""Nothing, the standard deviation, or the median absolute deviation from the median."""

ROUNDING = 1e-9
"""Values that differ by a smaller share of their size are the same number worked out in another order."""

Eps = Literal["outside", "inside"]
"""Where eps stands: x / (s + eps), or x / sqrt(s² + eps)."""


def spread_of(
    values: Floats, group: Ints, scale: Scale, *, ddof: int = 1, weights: Floats | None = None,
    median: Literal["lower", "mean"] = "lower",
) -> Floats:  # fmt: skip
    """Standard deviation or MAD per group number; NaN where it is not defined (fewer than ddof + 1 values)."""
    if scale == "std":
        middle = partition.spread(partition.mean(values, group, weights), group)
        squares = partition.total(np.where(group >= 0, (values - middle) ** 2, 0.0), group, weights)
        mass = partition.total(np.ones(len(values)) if weights is None else weights, group)
        return np.sqrt(np.divide(squares, mass - ddof, out=np.full(len(mass), np.nan), where=mass > ddof))
    if scale == "mad":
        middle = partition.spread(partition.median(values, group, median), group)
        away = np.abs(values - middle)
        # Rewards that are sums of the same parts differ by rounding: that is no spread, and dividing by it no unit.
        away[away <= ROUNDING * np.abs(values)] = 0.0
        return partition.median(away, group, median)
    raise CreditError(f"scale {scale!r} is unknown; choose none, std or mad")


def scaled(
    centred: Floats, values: Floats, group: Ints, scale: Scale, *, ddof: int = 1, eps: float = 1e-6,
    place: Eps = "outside", weights: Floats | None = None, median: Literal["lower", "mean"] = "lower",
) -> Floats:  # fmt: skip
    """Centred values divided by the spread of `values` in their group; values alone in a group stay as they are."""
    if scale == "none":
        return centred
    clean = np.where(group >= 0, values, 0.0)
    unit = partition.spread(spread_of(clean, group, scale, ddof=ddof, weights=weights, median=median), group, 1.0)
    unit = unit + eps if place == "outside" else np.sqrt(unit**2 + eps)
    usable = np.isfinite(unit) & (unit > 0) & (partition.size(group) > 1)
    return np.divide(centred, unit, out=centred.copy(), where=usable)
