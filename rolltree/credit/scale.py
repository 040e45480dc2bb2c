"""Scale: the unit a centred value is measured in."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import CreditError
from rolltree.tree.table import Floats, Ints

Ddof = Literal[0, 1]
"""What is taken from the count under a standard deviation: 1 for a sample's, 0 for a whole group's."""
Scale = Literal["none", "std", "mad"]
"""Nothing, the standard deviation, or the median absolute deviation from the median."""

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
        return partition.median(np.abs(values - middle), group, median)
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
