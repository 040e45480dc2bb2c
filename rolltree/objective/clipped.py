"""The clipped surrogate of PPO and its asymmetric and dual forms; with the bounds wide open, importance-weighted PG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need, need_paths
from rolltree.objective.ratio import behaviour, on_paths, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, share, two_channel

# A soft gate in the place of a hard clip: SAPO.


@register("sapo")
@dataclass(frozen=True, slots=True)
class Sapo:
    """−Σ gain·f(r; τ₊) + loss·f(r; τ₋), f(r; τ) = 4/τ·σ(τ(r − 1)) (Soft Adaptive PO, arXiv 2511.20347).

    The slope of f is 1 at r = 1 and fades on both sides; a larger τ fades faster, so τ₋ > τ₊ trusts negatives less.
    With `unit="sequence"` r is the geometric mean along the path, for all its actions.
    """

    tau_positive: float = 1.0
    tau_negative: float = 1.05
    unit: Literal["token", "sequence"] = "token"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.tau_positive, self.tau_negative) <= 0:
            raise ObjectiveError(f"sapo: temperatures must be > 0, not {self.tau_positive} and {self.tau_negative}")
        if self.unit not in ("token", "sequence"):
            raise ObjectiveError(f"sapo: unit={self.unit!r} must be 'token' or 'sequence'")

    @property
    def level(self) -> Level:
        """Tokens, or paths where they share a ratio."""
        return "token" if self.unit == "token" else "path"

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the weighted mean slope of the gate where it pushes up and down."""
        delta, gain, loss = batch.logp - batch.old, batch.gain, batch.loss
        if self.unit == "sequence":
            paths = need_paths(batch, "sapo(unit='sequence')")
            delta, credit = on_paths(delta, None, paths, "sequence_mean"), paths.entry_weight * paths.advantage
            gain, loss = credit.clamp(min=0), credit.clamp(max=0)
        r = ratio(delta)
        up, down = gate(r, self.tau_positive), gate(r, self.tau_negative)
        metrics = {
            "gate_positive": share(gain, slope(r.detach(), self.tau_positive)),
            "gate_negative": share(-loss, slope(r.detach(), self.tau_negative)),
        }
        return -(gain * up + loss * down).sum(), metrics


def gate(r: Tensor, tau: float) -> Tensor:
    """4/τ·σ(τ(r − 1))."""
    return (tau * (r - 1)).sigmoid() * (4 / tau)


def slope(r: Tensor, tau: float) -> Tensor:
    """Derivative of the gate: 4·σ(x)(1 − σ(x)), x = τ(r − 1)."""
    s = (tau * (r - 1)).sigmoid()
    return 4 * s * (1 - s)


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
