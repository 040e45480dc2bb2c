"""ReMix: off-policy data in a window centred on where the proximal policy already is, between two KL anchors."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need
from rolltree.objective.penalty import Anchor, Estimator, KlPenalty
from rolltree.objective.ratio import behaviour, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, two_channel


@register("remix")
@dataclass(frozen=True, slots=True)
class Remix:
    """PPO-clip on r = π/π_sampled with the window c ± ε, c = π_old/π_sampled, plus a convex pair of KL penalties.

    "Squeeze the Soaked Sponge", arXiv 2507.06892: Mix-PPG, and β[λ·KL(π‖base) + (1 − λ)·KL(π‖previous)]. The base is
    the batch's `reference`; the paper's λ falls over the run, which is a schedule of the knob. ε is added to the
    centre, as written, so the window is narrow in relative terms where c is large, and open below where c < ε;
    `relative` multiplies instead, which is decoupled PPO with an unbounded weight. An action without a sampling
    probability gets c = 1.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    relative: bool = False
    beta: float = 0.0
    mixing: float = 1.0
    """λ, the share of the base's KL."""
    kl_estimator: Estimator = "k2"
    level: Level = "token"

    def __post_init__(self) -> None:
        check_window("remix", self.clip_low, self.clip_high)
        if not 0 <= self.mixing <= 1:
            raise ObjectiveError(f"remix: mixing={self.mixing} is the share of the base's KL and must lie in [0, 1]")

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution, and an anchor for each KL with a weight."""
        return frozenset({"sampled"}).union(*(penalty.needs for penalty in self._penalties()))

    @property
    def skips_idle(self) -> bool:
        """Whether only the credit counts: a KL reads every action."""
        return not self.beta

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the clip shares and the KL of each anchor."""
        base, _ = behaviour(batch.old, need(batch.sampled, "sampled", "remix"))
        r, centre = ratio(batch.logp - base), ratio(batch.old - base)
        scale = centre if self.relative else 1.0
        window = ClipWindow(self.clip_low * scale, self.clip_high * scale, centre)
        metrics = clip_metrics(r, batch.gain, batch.loss, batch.weight, window)
        loss = -two_channel(r, batch.gain, batch.loss, window).sum()
        for penalty in self._penalties():
            cost, more = penalty(batch)
            loss = loss + cost
            metrics |= more
        return loss, metrics

    def _penalties(self) -> list[KlPenalty]:
        pair: tuple[tuple[Anchor, float], ...] = (("reference", self.mixing), ("previous", 1 - self.mixing))
        return [KlPenalty(self.beta * part, self.kl_estimator, name) for name, part in pair if self.beta * part]
