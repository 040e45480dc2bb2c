"""A soft gate in the place of a hard clip: SAPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from rolltree.objective.batch import Batch, Level, ObjectiveError, need_paths
from rolltree.objective.ratio import on_paths, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import share


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
