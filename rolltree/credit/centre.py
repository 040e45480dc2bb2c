"""Centre: what a value is compared with in its group."""

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
