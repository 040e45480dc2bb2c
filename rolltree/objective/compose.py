"""An objective with penalties and an off-policy correction around it is an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Objective, fit, step_wide
from rolltree.objective.correction import Correction, StepWideCorrection, fit_correction
from rolltree.objective.hooks import Accumulator, accumulator_of, skips_idle, step_factor
from rolltree.objective.penalty import Penalty


@dataclass(frozen=True, slots=True)
class Composed:
    """surrogate(corrected batch) + Σ penalties(batch). Penalties see the batch as it came; corrections run in order."""

    surrogate: Objective
    penalties: tuple[Penalty, ...] = ()
    corrections: tuple[Correction, ...] = ()

    @property
    def level(self) -> Level:
        """`path` when the surrogate or the correction works on paths."""
        return "path" if "path" in (self.surrogate.level, *(c.level for c in self.corrections)) else "token"

    @property
    def needs(self) -> frozenset[str]:
        """What any part needs."""
        return self.surrogate.needs.union(*(part.needs for part in (*self.corrections, *self.penalties)))

    @property
    def step_wide(self) -> bool:
        """Whether any part has a statistic of the whole step."""
        return step_wide(self.surrogate) or any(isinstance(c, StepWideCorrection) for c in self.corrections)

    @property
    def skips_idle(self) -> bool:
        """Whether no part reads actions without advantage: penalties do."""
        return not self.penalties and all(skips_idle(part) for part in (self.surrogate, *self.corrections))

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Sum of the parts' losses, union of their metrics."""
        metrics: dict[str, Tensor] = {}
        corrected = batch
        for correct in self.corrections:
            corrected, more = correct(corrected)
            metrics |= more
        loss, more = self.surrogate(corrected)
        metrics |= more
        for penalty in self.penalties:
            cost, more = penalty(batch)
            loss = loss + cost
            metrics |= more
        return loss, metrics

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """Fix the step-wide statistics of each part on the batches as it will see them."""
        fitted: list[Correction] = []
        for correction in self.corrections:
            correct = fit_correction(correction, batches)
            batches = [correct(batch)[0] for batch in batches]
            fitted.append(correct)
        return replace(self, corrections=tuple(fitted), surrogate=fit(self.surrogate, batches))

    def step_factor(self, batches: Sequence[Batch]) -> float | None:
        """The surrogate's."""
        return step_factor(self.surrogate, batches)

    def accumulator(self) -> Accumulator | None:
        """The surrogate's, which sees neither penalties nor corrections and so is refused beside them."""
        own = accumulator_of(self.surrogate)
        if own is not None and (self.penalties or self.corrections):
            raise ObjectiveError(
                f"{type(self.surrogate).__name__} puts its gradient together path by path and takes no penalties or "
                "corrections; leave them out, or set baseline=False"
            )
        return own
