"""A soft gate in the place of a hard clip: SAPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rolltree.objective.batch import Batch, Level, ObjectiveError
from rolltree.objective.ratio import ratio
from rolltree.objective.registry import register
from rolltree.objective.window import share


@register("sapo")
@dataclass(frozen=True, slots=True)
class Sapo:
    """−Σ gain·f(r; τ₊) + loss·f(r; τ₋), f(r; τ) = 4/τ·σ(τ(r − 1)) (Soft Adaptive PO, arXiv 2511.20347).

    The slope of f is 1 at r = 1 and fades on both sides; a larger τ fades faster, so τ₋ > τ₊ trusts negatives less.
    """

    tau_positive: float = 1.0
    tau_negative: float = 1.05
    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.tau_positive, self.tau_negative) <= 0:
            raise ObjectiveError(f"sapo: temperatures must be > 0, not {self.tau_positive} and {self.tau_negative}")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the weighted mean slope of the gate where it pushes up and down."""
        r = ratio(batch.logp - batch.old)
        up, down = gate(r, self.tau_positive), gate(r, self.tau_negative)
        metrics = {
            "gate_positive": share(batch.gain, slope(r.detach(), self.tau_positive)),
            "gate_negative": share(-batch.loss, slope(r.detach(), self.tau_negative)),
        }
        return -(batch.gain * up + batch.loss * down).sum(), metrics


def gate(r: Tensor, tau: float) -> Tensor:
    """4/τ·σ(τ(r − 1))."""
    return (tau * (r - 1)).sigmoid() * (4 / tau)


def slope(r: Tensor, tau: float) -> Tensor:
    """Derivative of the gate: 4·σ(x)(1 − σ(x)), x = τ(r − 1)."""
    s = (tau * (r - 1)).sigmoid()
    return 4 * s * (1 - s)
