"""VCPO: whole-path weights without a clip, a step that shrinks with their effective sample size, and its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need, need_paths
from rolltree.objective.hooks import Accumulation, Accumulator
from rolltree.objective.registry import register
from rolltree.objective.staleness import TwoAccumulators, ess, sequence_weights, step_scale

# The minimum-variance baseline of VCPO, known only when the last path of a group has been differentiated.


@dataclass(slots=True)
class GroupBaseline:
    """−Σ_groups Σ_i w_i (A_i − b*)·∇Σ_t ω_i log π with w_i = min(W_i, cap) (VCPO, arXiv 2602.17616).

    ω_i is the path's averaging weight and b* = Σ w²‖g‖²A / Σ w²‖g‖² over the group, of the gradients g that are
    really summed. Adding a constant to all advantages of a group adds it to b* too, so it does not matter which
    baseline the credit has taken off before. Paths of a group must follow each other; memory is three gradients.
    """

    cap: float
    held: TwoAccumulators = field(default_factory=TwoAccumulators)
    scores: list[float] = field(default_factory=list[float])
    total: list[Tensor] = field(default_factory=list[Tensor])
    loss: float = 0.0
    baselines: list[float] = field(default_factory=list[float])
    group: int | None = None

    def score(self, batch: Batch) -> Tensor:
        """Σ_t ω log π of the path."""
        paths = need_paths(batch, "vcpo")
        return (paths.entry_weight * batch.logp[paths.index]).sum()

    def add(self, batch: Batch, score: float, gradient: Sequence[Tensor]) -> None:
        """One path; the first of another group closes the group before."""
        paths = need_paths(batch, "vcpo")
        group = int(need(paths.group, "group", "vcpo with its baseline")[0])
        if group != self.group:
            self._close()
            self.group = group
        low, high = (float(x) for x in paths.advantage.aminmax())
        if high - low > 1e-6 * max(1.0, abs(low), abs(high)):
            raise ObjectiveError(
                "vcpo: a baseline per group needs one advantage per path, but one path has advantages from "
                f"{low:.3g} to {high:.3g}; choose a credit of outcomes, or baseline=False"
            )
        weight = float(sequence_weights(batch, "vcpo").clamp(max=self.cap)[0])
        self.held.add(gradient, high, weight)
        self.scores.append(score)

    def result(self) -> Accumulation:
        """Gradient and loss of the update, and the mean baseline of its groups."""
        self._close()
        mean = sum(self.baselines) / len(self.baselines) if self.baselines else 0.0
        return Accumulation([-g for g in self.total], self.loss, {"baseline": mean})

    def _close(self) -> None:
        if not self.scores:
            return
        b = self.held.baseline
        terms = zip(self.held.weights, self.held.rewards, self.scores, strict=True)
        self.loss -= sum(w * (a - b) * score for w, a, score in terms)
        summed = self.held.summed(b)
        self.total = [t + s for t, s in zip(self.total, summed, strict=True)] if self.total else summed
        self.baselines.append(b)
        self.held, self.scores = TwoAccumulators(), []


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
