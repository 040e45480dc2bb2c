"""Learning curves of several seeds on one cost axis: values at a cost, areas, and bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.compare.stats import t_interval
from rolltree.compare.stats.paired import Floats
from rolltree.compare.trace import Axis, LabError, Trace

FEW = 4
"""Seeds from which on an interval of a curve is drawn."""


@dataclass(frozen=True)
class Band:
    """Mean over seeds at each of some costs, with a t interval, or the range of the runs where they are few."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    level: float
    seeds: int
    ranged: bool
    """Whether `low` and `high` are the lowest and highest run: fewer than FEW seeds have no useful interval."""


LAST = 3
"""Evaluations whose mean is the end of a curve: a single one stands and falls with its samples."""


def value_at(trace: Trace, metric: str, cost: float, axis: Axis = "decoded") -> float:
    """The curve at a cost, between measurements by straight line.

    A run that stopped just short of the cost counts with its last value; one that covered less than 90 % of it is
    refused, because it was not given the same budget.
    """
    x, y = trace.curve(metric, axis)
    if x[-1] < 0.9 * cost:
        raise LabError(
            f"run {trace.label!r}, seed {trace.seed}, measured {metric!r} only up to {x[-1]:.6g} of {cost:.6g} {axis}; "
            "continue it or compare at a smaller budget"
        )
    return float(np.interp(cost, x, y))


def endpoint(trace: Trace, metric: str, cost: float | None = None, axis: Axis = "decoded") -> float:
    """Where the curve ends at a cost: the mean of the last evaluations up to it, `LAST` of them where there are.

    The one in which a run overshoots the cost, by less than a step, counts; the one before training does not. None is
    the whole curve.
    """
    x, y = trace.curve(metric, axis)
    if cost is not None:
        value_at(trace, metric, cost, axis)  # refuses a run that was given less
    until = len(y) if cost is None else int(np.searchsorted(x, cost)) + 1
    return float(y[min(1, len(y) - 1) : until][-LAST:].mean())


def area(trace: Trace, metric: str, budget: float, axis: Axis = "decoded") -> float:
    """Area under the learning curve up to the budget, divided by the budget: the average value while learning."""
    x, y = trace.curve(metric, axis)
    end = value_at(trace, metric, budget, axis)
    inside = x < budget
    xs = np.concatenate([[0.0], x[inside], [budget]])
    ys = np.concatenate([[y[0]], y[inside], [end]])
    return float(np.trapezoid(ys, xs) / budget)


def band(
    traces: Sequence[Trace],
    metric: str,
    axis: Axis = "decoded",
    *,
    level: float = 0.95,
    points: int = 60,
    until: float | None = None,
) -> Band:
    """The band on a grid that ends where the shortest run (or `until`) ends: every point has all seeds.

    With fewer than `FEW` seeds an interval is wider than any chart, so the range of the runs is given instead.
    """
    curves = [t.curve(metric, axis) for t in traces]
    end = min(float(x[-1]) for x, _ in curves)
    start = max(float(x[0]) for x, _ in curves)
    if until is not None:
        end = min(end, until)
    grid = np.linspace(start, max(start, end), points)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    ranged = len(traces) < FEW
    made = [] if ranged else [t_interval(column, level) for column in values.T]
    return Band(
        x=grid,
        mean=values.mean(0),
        low=values.min(0) if ranged else np.asarray([i.low for i in made]),
        high=values.max(0) if ranged else np.asarray([i.high for i in made]),
        level=level,
        seeds=len(traces),
        ranged=ranged,
    )
