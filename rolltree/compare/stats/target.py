"""What it costs to reach a target, when some runs never do within their budget (right-censored costs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rolltree.compare.stats.paired import StatsError


@dataclass(frozen=True, slots=True)
class TargetReach:
    """Cost at which one run reached the target, or the cost at which it was last seen not having reached it."""

    cost: float
    reached: bool


def first_reach(cost: ArrayLike, value: ArrayLike, target: float) -> TargetReach:
    """Where a curve first reaches the target, between measurements by straight line. Censored at its last point."""
    x, y = np.asarray(cost, np.float64), np.asarray(value, np.float64)
    if not len(x) or len(x) != len(y):
        raise StatsError(f"a curve needs as many costs as values and at least one, got {len(x)} and {len(y)}")
    at = np.flatnonzero(y >= target)
    if not len(at):
        return TargetReach(float(x[-1]), False)
    i = int(at[0])
    if i == 0:
        return TargetReach(float(x[0]), True)
    share = (target - y[i - 1]) / (y[i] - y[i - 1])
    return TargetReach(float(x[i - 1] + share * (x[i] - x[i - 1])), True)


def median_reach(runs: Sequence[TargetReach]) -> float | None:
    """Kaplan–Meier median of the cost to reach the target; None when fewer than half got there before censoring."""
    alive, share = len(runs), 1.0
    for run in sorted(runs, key=lambda r: (r.cost, not r.reached)):
        if run.reached:
            share *= 1 - 1 / alive
            if share <= 0.5 + 1e-12:
                return run.cost
        alive -= 1
    return None


def restricted(runs: Sequence[TargetReach], horizon: float) -> list[float]:
    """Cost spent without the target up to a horizon that every run was watched for: a number each run has.

    Its mean is the restricted mean of survival analysis; differences of it can be paired and tested like any value.
    """
    early = [r for r in runs if not r.reached and r.cost < horizon * (1 - 1e-9)]
    if early:
        raise StatsError(
            f"a run was watched only up to {early[0].cost:g} and had not reached the target there; "
            f"use a horizon of at most that instead of {horizon:g}"
        )
    return [min(r.cost, horizon) if r.reached else horizon for r in runs]
