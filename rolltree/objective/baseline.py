"""The minimum-variance baseline of VCPO, known only when the last path of a group has been differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rolltree.objective.batch import Batch, ObjectiveError, need, need_paths
from rolltree.objective.hooks import Accumulation
from rolltree.objective.staleness import TwoAccumulators, sequence_weights


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
