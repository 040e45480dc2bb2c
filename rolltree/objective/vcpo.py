"""VCPO: whole-path weights without a clip, a step that shrinks with their effective sample size, and its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rolltree.objective.baseline import GroupBaseline
from rolltree.objective.batch import Batch, Level, ObjectiveError, need_paths
from rolltree.objective.hooks import Accumulator
from rolltree.objective.registry import register
from rolltree.objective.staleness import ess, sequence_weights, step_scale


@register("vcpo")
@dataclass(frozen=True, slots=True)
class Vcpo:
    """−Σ_paths min(W, cap)·A·log π with W = exp Σ_t log π/π_sampled detached; no clip (arXiv 2602.17616).

    The trainer multiplies each update's learning rate by min(1, ESS/`full`)^`power`, ESS the effective share of the
    update's uncapped weights; `power=0` leaves the step alone. With `baseline` the advantages of each group are centred
    on the minimum-variance baseline, which costs a backward pass per path. Called as a function it is the loss alone.
    """

    cap: float = 8.0
    power: float = 0.5
    full: float = 1.0
    baseline: bool = False
    level: Level = "path"

    def __post_init__(self) -> None:
        if not self.cap > 0:
            raise ObjectiveError(f"vcpo: cap={self.cap} must be > 0")
        if self.power < 0:
            raise ObjectiveError(f"vcpo: power={self.power} must be ≥ 0; 0 leaves the step as it is")
        step_scale(1.0, self.full)

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss; ESS, and the mean and largest weight of the paths."""
        paths = need_paths(batch, "vcpo")
        raw = sequence_weights(batch, "vcpo")
        credit = paths.entry_weight * paths.advantage * raw.clamp(max=self.cap)[paths.path]
        metrics = {"update_ess": ess(raw)}
        if len(raw):
            metrics |= {"sequence_weight_mean": raw.mean(), "sequence_weight_max": raw.max()}
        return -(credit * batch.logp[paths.index]).sum(), metrics

    def step_factor(self, batches: Sequence[Batch]) -> float | None:
        """min(1, ESS/full)^power over the paths of the whole update."""
        if not self.power:
            return None
        raw = torch.cat([sequence_weights(batch, "vcpo") for batch in batches])
        return step_scale(float(ess(raw)), self.full, self.power)

    def accumulator(self) -> Accumulator | None:
        """Centres each group on its minimum-variance baseline; None without `baseline`."""
        return GroupBaseline(self.cap) if self.baseline else None
