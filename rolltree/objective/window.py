"""Clip windows: bounds on a ratio, as numbers, per action, or around a centre; and bounds searched for a statistic.

Credit family primitive 9. A window is stated by its distances from the centre, so (0.2, 0.28) around 1 is the range
[0.8, 1.28]. Every objective has exactly one owner of its window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError

Bound = float | Tensor


@dataclass(frozen=True, slots=True)
class ClipWindow:
    """The range [centre − low, centre + high] of a ratio. Each of the three is a number or one number per action."""

    low: Bound
    high: Bound
    centre: Bound = 1.0

    @property
    def floor(self) -> Bound:
        """Smallest ratio a negative advantage still pushes down."""
        return self.centre - self.low

    @property
    def ceiling(self) -> Bound:
        """Largest ratio a positive advantage still pushes up."""
        return self.centre + self.high


def two_channel(ratio: Tensor, gain: Tensor, loss: Tensor, window: ClipWindow, dual: float | None = None) -> Tensor:
    """(T,) the clipped surrogate, to maximise: gain·min(r, ceiling) + loss·max(r, floor).

    Equal to Σᵢ min(r·Aᵢ, clip(r)·Aᵢ) over the leaves i that share the action, because the minimum takes the upper bound
    for every Aᵢ ≥ 0 and the lower bound for every Aᵢ < 0. A dual clip (Ye et al. 2020, arXiv 1912.09729) replaces
    max(r, floor) by min(max(r, floor), c).
    """
    pushed_down = at_least(ratio, window.floor)
    return gain * at_most(ratio, window.ceiling) + loss * (pushed_down if dual is None else at_most(pushed_down, dual))


def at_most(values: Tensor, bound: Bound) -> Tensor:
    """min(values, bound); a value on the bound keeps its gradient."""
    return values.clamp(max=bound)


def at_least(values: Tensor, bound: Bound) -> Tensor:
    """max(values, bound); a value on the bound keeps its gradient."""
    return values.clamp(min=bound)


def share(weight: Tensor, where: Tensor) -> Tensor:
    """Weighted share of the entries where a condition holds; 0 for an empty batch."""
    total = weight.sum()
    return torch.where(total > 0, (weight * where).sum() / torch.where(total > 0, total, 1), 0).detach()


def clip_metrics(
    ratio: Tensor, gain: Tensor, loss: Tensor, weight: Tensor, window: ClipWindow, dual: float | None = None
) -> dict[str, Tensor]:  # fmt: skip
    """Shares of the weight whose gradient a window (and a dual clip, where there is one) removes, and the largest
    ratio."""
    r = ratio.detach()
    bounded = {} if dual is None else {"clip_dual": share(weight, (r > dual) & (loss < 0))}
    return bounded | {
        "clip_high": share(weight, (r > window.ceiling) & (gain > 0)),
        "clip_low": share(weight, (r < window.floor) & (loss < 0)),
        "ratio_max": r.max() if len(r) else r.sum(),
    }


Search = tuple[float, float, float]
"""Start, end and step of one bound."""


def solve_window(
    statistic: Callable[[float, float], float], low: Search, high: Search, target: float, *, low_first: bool = True
) -> tuple[float, float]:
    """Move two bounds, given as ratios, up from their starts until a statistic of them reaches a target (BAPO).

    One bound walks to its end before the other begins. The statistic must be one number for the whole step, or every
    worker ends with bounds of its own.
    """
    for name, (start, end, step) in (("low", low), ("high", high)):
        if step <= 0 or end < start:
            raise ObjectiveError(f"cannot search the {name} bound from {start} to {end} in steps of {step}")
    bounds = [low[0], high[0]]
    for which in (0, 1) if low_first else (1, 0):
        start, end, step = (low, high)[which]
        for walked in range(1, math.ceil((end - start) / step - 1e-9) + 1):
            if statistic(bounds[0], bounds[1]) >= target:
                break
            bounds[which] = min(start + walked * step, end)
    return bounds[0], bounds[1]


def check_window(who: str, clip_low: float, clip_high: float, dual: float | None = None) -> None:
    """Raise unless bounds make sense as distances from one."""
    if not 0 <= clip_low <= 1:
        raise ObjectiveError(f"{who}: clip_low={clip_low} must lie in [0, 1]; it is a distance below a ratio of 1")
    if not clip_high >= 0:
        raise ObjectiveError(f"{who}: clip_high={clip_high} must be ≥ 0; it is a distance above a ratio of 1")
    if dual is not None and dual <= 1 + clip_high:
        raise ObjectiveError(f"{who}: dual clip {dual} must exceed 1 + clip_high = {1 + clip_high}")
