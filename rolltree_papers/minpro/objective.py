"""MinPRO: the weight of an action's gradient looks at how reachable its prefix was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need, need_paths
from rolltree.objective.ratio import behaviour, on_paths, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, share, two_channel


@register("minpro")
@dataclass(frozen=True, slots=True)
class MinPro:
    """Weight ρ_t·min_{i<t} ρ_i, ρ = π/π_sampled, in the place of the prefix product (arXiv 2601.22718).

    `style="cispo"`: −Σ sg(clip(w, low, high))·A·log π with w the whole product. `style="ppo"`: the detached prefix
    factor multiplies PPO-clip on ρ_t, whose window is [1 − clip_low, 1 + clip_high]. `inclusive` takes the minimum up
    to t; `cap` holds it at 1, so that a prefix never weighs up. Actions without a sampling probability are skipped by
    the minimum and measured against the proximal policy.
    """

    style: Literal["cispo", "ppo"] = "cispo"
    low: float = 0.0
    high: float = 5.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    inclusive: bool = False
    cap: bool = False
    level: Level = "path"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_window("minpro", self.clip_low, self.clip_high)
        if self.style not in ("cispo", "ppo"):
            raise ObjectiveError(f"minpro: style={self.style!r} must be 'cispo' or 'ppo'")
        if not 0 <= self.low < self.high:
            raise ObjectiveError(f"minpro: weight bounds must satisfy 0 ≤ low < high, not {self.low} and {self.high}")

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the mean prefix factor and what a bound held."""
        paths = need_paths(batch, "minpro")
        centre, known = behaviour(batch.old, need(batch.sampled, "sampled", "minpro"))
        delta = batch.logp - centre
        view = "prefix_min_inclusive" if self.inclusive else "prefix_min"
        log_prefix = on_paths(delta.detach(), known, paths, view)
        prefix = ratio(log_prefix.clamp(max=0) if self.cap else log_prefix)
        own = ratio(delta)[paths.index]
        credit = paths.entry_weight * paths.advantage
        metrics = {"prefix_factor": share(paths.entry_weight, prefix)}
        if self.style == "cispo":
            raw = own.detach() * prefix
            weight = raw.clamp(self.low, self.high)
            metrics["ratio_bounded"] = share(paths.entry_weight, weight != raw)
            return -(credit * weight * batch.logp[paths.index]).sum(), metrics
        gain, loss = credit.clamp(min=0) * prefix, credit.clamp(max=0) * prefix
        window = ClipWindow(self.clip_low, self.clip_high)
        metrics |= clip_metrics(own, gain, loss, paths.entry_weight, window)
        return -two_channel(own, gain, loss, window).sum(), metrics
