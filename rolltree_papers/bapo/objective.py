"""BAPO: clip bounds searched each step until positive advantages carry their share of the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Objective, merge
from rolltree.objective.ratio import ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, solve_window, two_channel

Contribution = Literal["value", "gradient"]


@register("bapo")
@dataclass(frozen=True, slots=True)
class Bapo:
    """PPO with a dual clip and bounds [c_low, c_high] solved per step (Balanced PO, arXiv 2510.18927).

    The bounds are ratios. They walk up from (low_start, high_start) while the positive share
    Σ_{A>0} / (Σ_{A>0} + Σ_{A<0}) of the clipped surrogate is below `target`. `contribution="value"` counts what clipped
    actions add to the loss, "gradient" only what still has a gradient: raising c_low lowers the positive share of the
    first and raises that of the second, so under "value" a low search that starts always runs to its end.
    `bounds` fixes the answer; a target of 0 keeps the start.
    """

    target: float = 0.5
    low_start: float = 0.6
    low_end: float = 0.9
    low_step: float = 0.05
    high_start: float = 1.2
    high_end: float = 3.0
    high_step: float = 0.05
    low_first: bool = True
    contribution: Contribution = "value"
    dual: float | None = 3.0
    bounds: tuple[float, float] | None = None
    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_window("bapo", 1 - self.low_end, self.high_end - 1)
        check_window("bapo", 1 - self.low_start, self.high_start - 1)
        if not 0 <= self.target < 1:
            raise ObjectiveError(f"bapo: target={self.target} is a share of the total and must lie in [0, 1)")
        if self.contribution not in ("value", "gradient"):
            raise ObjectiveError(f"bapo: contribution={self.contribution!r} must be 'value' or 'gradient'")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """Bounds from the actions of the whole step."""
        return replace(self, bounds=self._solve(merge(batches)))

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the bounds and the clip shares."""
        low, high = self.bounds or self._solve(batch)
        r = ratio(batch.logp - batch.old)
        window = ClipWindow(1 - low, high - 1)
        metrics = clip_metrics(r, batch.gain, batch.loss, batch.weight, window, self.dual)
        moved = (low - self.low_start) + (high - self.high_start)
        told = {"bound_low": low, "bound_high": high, "bounds_moved": moved}
        metrics |= {name: r.new_tensor(value) for name, value in told.items()}
        return -two_channel(r, batch.gain, batch.loss, window, self.dual).sum(), metrics

    def _solve(self, batch: Batch) -> tuple[float, float]:
        low = (self.low_start, self.low_end, self.low_step)
        high = (self.high_start, self.high_end, self.high_step)
        return solve_window(
            positive_share(batch, self.contribution, self.dual), low, high, self.target, low_first=self.low_first
        )


def positive_share(
    batch: Batch, contribution: Contribution = "value", dual: float | None = None
) -> Callable[[float, float], float]:
    """The share of the clipped surrogate that positive advantages carry, as a function of (c_low, c_high)."""
    r = ratio(batch.logp.detach() - batch.old)
    gradient = contribution == "gradient"
    up, down = batch.gain, -batch.loss if dual is None or not gradient else torch.where(r <= dual, -batch.loss, 0)

    def at(low: float, high: float) -> float:
        positive = (up * (torch.where(r <= high, r, 0) if gradient else r.clamp(max=high))).sum()
        negative = (down * (torch.where(r >= low, r, 0) if gradient else r.clamp(min=low))).sum()
        total = positive + negative
        return float(positive / total) if total > 0 else 1.0

    return at
