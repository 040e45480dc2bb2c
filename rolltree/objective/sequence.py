"""Objectives whose ratio belongs to a whole sequence: GSPO and GMPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need_paths
from rolltree.objective.ratio import on_paths, path_mean, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, at_least, at_most, check_window, clip_metrics, share, two_channel


@register("gspo")
@dataclass(frozen=True, slots=True)
class Gspo:
    """−Σ_paths w·A·clip(s), s = exp(mean_t log π/π_old) (GSPO; Zheng et al. 2025, arXiv 2507.18071, eq. 5–7).

    `token_gradient` is GSPO-token (eq. 13): the value of s, but each action's own gradient, which is what advantages
    that differ within a path ask for. With one advantage per path the two have the same gradient. `product` leaves the
    mean out, as TRL's RLOO does: s is the ratio of whole paths, and wants a window of tenths.
    """

    clip_low: float = 3e-4
    clip_high: float = 4e-4
    token_gradient: bool = False
    product: bool = False
    level: Level = "path"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_window("gspo", self.clip_low, self.clip_high)
        if self.product and self.token_gradient:
            raise ObjectiveError("gspo: token_gradient=True spreads a mean over its actions; give product=False")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing beyond paths."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and the share of path entries clipped on either side."""
        paths = need_paths(batch, "gspo")
        delta = batch.logp - batch.old
        log_s = on_paths(delta, None, paths, "sequence_sum" if self.product else "sequence_mean")
        if self.token_gradient:
            own = batch.logp[paths.index]
            log_s = log_s.detach() + own - own.detach()
        s = ratio(log_s)
        gain = paths.entry_weight * paths.advantage.clamp(min=0)
        loss = paths.entry_weight * paths.advantage.clamp(max=0)
        window = ClipWindow(self.clip_low, self.clip_high)
        metrics = clip_metrics(s, gain, loss, paths.entry_weight, window)
        return -two_channel(s, gain, loss, window).sum(), metrics


@register("gmpo")
@dataclass(frozen=True, slots=True)
class Gmpo:
    """−Σ_paths w·A·exp(mean_t log r_t, bounded) (Geometric-Mean PO, arXiv 2507.20673).

    Each action's log-ratio is bounded before the mean: above by `clip_high` where A ≥ 0, below by −`clip_low` where
    A < 0. The bounds are distances of log-ratios, so 0.4 is the window (e^−0.4, e^0.4).
    """

    clip_low: float = 0.4
    clip_high: float = 0.4
    level: Level = "path"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.clip_low, self.clip_high) < 0:
            raise ObjectiveError(f"gmpo: log-ratio bounds must be ≥ 0, not {self.clip_low} and {self.clip_high}")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing beyond paths."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the share of path entries bounded."""
        paths = need_paths(batch, "gmpo")
        delta = (batch.logp - batch.old)[paths.index]
        up = ratio(path_mean(at_most(delta, self.clip_high), paths))[paths.path]
        down = ratio(path_mean(at_least(delta, -self.clip_low), paths))[paths.path]
        credit = paths.entry_weight * paths.advantage
        bounded = ((delta > self.clip_high) & (credit > 0)) | ((delta < -self.clip_low) & (credit < 0))
        loss = -(credit.clamp(min=0) * up + credit.clamp(max=0) * down).sum()
        return loss, {"ratio_bounded": share(paths.entry_weight, bounded)}
