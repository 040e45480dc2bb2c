"""The clipped surrogate of PPO and its asymmetric and dual forms; with the bounds wide open, importance-weighted PG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from rolltree.objective.batch import Batch, Level, ObjectiveError, need
from rolltree.objective.ratio import behaviour, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, two_channel


@register("clipped")
@dataclass(frozen=True, slots=True)
class Clipped:
    """−Σ gain·min(r, 1+ε₊) + loss·max(r, 1−ε₋), r = π/π_old (Schulman et al. 2017, arXiv 1707.06347, eq. 7).

    Asymmetric bounds ("clip higher") are DAPO's (arXiv 2503.14476); `dual` bounds what a negative advantage can cost
    (arXiv 1912.09729). `against="sampled"` divides by the distribution sampled from; actions without one fall back to
    π_old.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual: float | None = None
    against: Literal["old", "sampled"] = "old"
    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_window("clipped", self.clip_low, self.clip_high, self.dual)
        if self.against not in ("old", "sampled"):
            raise ObjectiveError(f"clipped: against={self.against!r} must be 'old' or 'sampled'")

    @property
    def needs(self) -> frozenset[str]:
        """`sampled` when the ratio is taken against it."""
        return frozenset({"sampled"} if self.against == "sampled" else ())

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and the shares clipped on either side, and by the dual clip."""
        centre = batch.old
        if self.against == "sampled":
            centre, _ = behaviour(batch.old, need(batch.sampled, "sampled", "clipped(against='sampled')"))
        r = ratio(batch.logp - centre)
        window = ClipWindow(self.clip_low, self.clip_high)
        gained = two_channel(r, batch.gain, batch.loss, window, self.dual)
        return -gained.sum(), clip_metrics(r, batch.gain, batch.loss, batch.weight, window, self.dual)


@register("context_corrected")
def context_corrected(clip_low: float = 0.2, clip_high: float = 0.2, dual: float | None = None) -> Clipped:
    """The clipped surrogate for rollouts sampled in another context than the one trained (Guide, arXiv 2506.13923).

    π is scored without the hint and divided by the distribution that sampled with it, action by action, so the
    gradient teaches the unaided policy. Ratios start far below one: credit fades with what the unaided policy would
    never have said.
    """
    return Clipped(clip_low, clip_high, dual, against="sampled")
