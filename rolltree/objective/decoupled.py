"""Decoupled PPO: the proximal policy that centres the clip is not the policy that sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Objective, need
from rolltree.objective.clipped import Clipped
from rolltree.objective.correction import Bounding, Denominator, ImportanceWeight, Unit
from rolltree.objective.registry import register

Prox = Literal["old", "loglinear", "sampled", "ewma"]


@register("decoupled")
@dataclass(frozen=True, slots=True)
class Decoupled:
    """−Σ w·(clipped surrogate of r), r = π/π_prox, w = π_prox/π_sampled bounded (arXiv 2110.00641; AReaL, 2505.24298).

    `prox`: "old" is the log-prob recomputed at the start of the step; "loglinear" interpolates it without a forward
    pass (A-3PO, arXiv 2512.06547); "sampled" lets the sampling policy be the proximal one, which is PPO on stale data;
    "ewma" is the running mean of the weights of past updates (PPO-EWMA, arXiv 2110.00641).
    `unit`, `bound` and what follows are those of `ImportanceWeight`.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual: float | None = None
    prox: Prox = "old"
    unit: Unit = "token"
    bound: Bounding = "mask"
    low: float = 0.0
    high: float = 5.0
    denominator: Denominator = "original"
    factor: float | None = None

    def __post_init__(self) -> None:
        if self.prox not in get_args(Prox):
            raise ObjectiveError(f"decoupled: prox={self.prox!r} must be one of {', '.join(get_args(Prox))}")
        self._parts()  # bad knobs are refused here, not at the first batch

    @property
    def level(self) -> Level:
        """`path` when the weight belongs to a sequence."""
        return self._parts()[1].level

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution, and the staleness to interpolate with."""
        more = {"loglinear": {"staleness"}, "ewma": {"ewma"}}
        return frozenset({"sampled"} | more.get(self.prox, set()))

    @property
    def skips_idle(self) -> bool:
        """Whether no weight is rescaled by what survives."""
        return self.denominator == "original"

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss; metrics of the clip and of the weight."""
        surrogate, weight = self._parts()
        corrected, metrics = weight(self._centred(batch))
        loss, more = surrogate(corrected)
        return loss, metrics | more

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """The weight's rescaling factor over the whole step."""
        return replace(self, factor=self._parts()[1].fit([self._centred(batch) for batch in batches]).factor)

    def _centred(self, batch: Batch) -> Batch:
        return batch if self.prox == "old" else replace(batch, old=self._prox(batch))

    def _parts(self) -> tuple[Clipped, ImportanceWeight]:
        weight = ImportanceWeight(
            self.unit, self.bound, self.low, self.high, denominator=self.denominator, factor=self.factor
        )
        return Clipped(self.clip_low, self.clip_high, self.dual), weight

    def _prox(self, batch: Batch) -> Tensor:
        if self.prox == "ewma":
            return need(batch.ewma, "ewma", "decoupled(prox='ewma')")
        sampled = need(batch.sampled, "sampled", f"decoupled(prox={self.prox!r})")
        known = torch.isfinite(sampled)
        if self.prox == "sampled":
            return torch.where(known, sampled, batch.old)
        staleness = need(batch.staleness, "staleness", "decoupled(prox='loglinear')")
        return torch.where(known & (staleness >= 0), loglinear(batch.logp, sampled, staleness), batch.old)


def loglinear(logp: Tensor, sampled: Tensor, staleness: Tensor) -> Tensor:
    """log π_prox on the line between log π_sampled and log π, by versions (A-3PO). Detached.

    α = (v_prox − v_sampled)/(v − v_sampled). A step begins at v_prox and makes v = v_prox + 1, and `staleness` counts
    up to its beginning: v_prox − v_sampled. So α = staleness/(staleness + 1), and at staleness 0 the sampling weights
    are the proximal ones.
    """
    alpha = (staleness.clamp(min=0) / (staleness.clamp(min=0) + 1)).to(logp.dtype)
    return (sampled + alpha * (logp.detach() - sampled)).detach()
