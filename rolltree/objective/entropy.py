"""Clips that look at entropy: the gradient-keeping clip of AEPO and the token-entropy clip of HAPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from rolltree.generate.signals import LEAST_ENTROPY
from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Objective, need
from rolltree.objective.ratio import ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, at_least, at_most, check_window, clip_metrics, two_channel


@register("aepo")
@dataclass(frozen=True, slots=True)
class Aepo:
    """PPO-clip whose upper side keeps a gradient (Agentic Entropy-Balanced PO, arXiv 2510.14545).

    Above 1 + ε₊ a positive advantage still has the value (1 + ε₊)·A, and the gradient (1 + ε₊)·A·∇log π instead of
    zero. The lower side and the dual clip are PPO's. The paper's entropy-aware advantage is a credit, not a clip.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual: float | None = None
    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_window("aepo", self.clip_low, self.clip_high, self.dual)

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the shares at either bound (the upper one is held, not cut)."""
        r = ratio(batch.logp - batch.old)
        window = ClipWindow(self.clip_low, self.clip_high)
        held = torch.where(r > 1 + self.clip_high, (1 + self.clip_high) * r / r.detach(), r)
        down = at_least(r, 1 - self.clip_low)
        down = down if self.dual is None else at_most(down, self.dual)
        loss = -(batch.gain * held + batch.loss * down).sum()
        return loss, clip_metrics(r, batch.gain, batch.loss, batch.weight, window)


@dataclass(frozen=True, slots=True)
class EntropyScale:
    """What turns an entropy into ĥ ∈ [−1, 1]: a pivot of log-entropy and the largest deviation on either side."""

    pivot: float
    top: float
    bottom: float

    def __call__(self, entropy: Tensor) -> Tensor:
        """ĥ of some entropies; those beyond the step's extremes are held at ±1."""
        above = _log(entropy) - self.pivot
        return torch.where(above > 0, above / self.top, above / self.bottom).clamp(-1, 1)


def entropy_scale(entropy: Tensor, quantile: float = 0.8) -> EntropyScale:
    """Pivot at a quantile of log-entropy and the extremes of either side.

    HAPO also divides by the spread around the pivot before it divides by the extremes; the spread cancels.
    """
    if not entropy.numel():
        return EntropyScale(0.0, 1.0, 1.0)
    e = _log(entropy.detach().double())
    pivot = _quantile(e, quantile)
    return EntropyScale(pivot, max(float(e.max()) - pivot, 0.0) or 1.0, max(pivot - float(e.min()), 0.0) or 1.0)


@register("hapo")
@dataclass(frozen=True, slots=True)
class Hapo:
    """Advantages and bounds that depend on an action's normalised log-entropy ĥ (HAPO, arXiv 2509.16591).

    Window: actions with ĥ < 0 may fall further, to 1 − ε₋(1 − αĥ); with ĥ > 0 they may rise further, to 1 + ε₊(1 + αĥ).
    Credit: within half the window of 1, low-entropy actions count 1 + βĥ; outside it, high-entropy ones do.
    `alpha=0, beta=0` is the dual-clipped surrogate. `scale` fixes ĥ; each action counts once in it, however shared.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    alpha: float = 1.0
    beta: float = 1.0
    quantile: float = 0.8
    dual: float | None = 10.0
    scale: EntropyScale | None = None
    level: Level = "token"

    def __post_init__(self) -> None:
        check_window("hapo", self.clip_low, self.clip_high, self.dual)
        if not (0 <= self.beta <= 1 and self.alpha >= 0):
            raise ObjectiveError(f"hapo: alpha={self.alpha} must be ≥ 0 and beta={self.beta} in [0, 1], or signs flip")

    @property
    def needs(self) -> frozenset[str]:
        """Entropies."""
        return frozenset({"entropy"})

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """The entropy scale of what is learned from at once: of an update."""
        entropy = torch.cat([need(batch.entropy, "entropy", "hapo").detach() for batch in batches])
        return replace(self, scale=entropy_scale(entropy, self.quantile))

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the clip shares and the mean ĥ."""
        entropy = need(batch.entropy, "entropy", "hapo").detach()
        h = (self.scale or entropy_scale(entropy, self.quantile))(entropy)
        r = ratio(batch.logp - batch.old)
        inside = (r.detach() > 1 - self.clip_low / 2) & (r.detach() < 1 + self.clip_high / 2)
        factor = torch.where(inside, 1 + self.beta * h.clamp(max=0), 1 + self.beta * h.clamp(min=0))
        low = self.clip_low * (1 - self.alpha * h.clamp(max=0))
        window = ClipWindow(low, self.clip_high * (1 + self.alpha * h.clamp(min=0)))
        gain, loss = batch.gain * factor, batch.loss * factor
        metrics = clip_metrics(r, gain, loss, batch.weight, window)
        metrics["entropy_scaled"] = h.mean() if len(h) else h.sum()
        return -two_channel(r, gain, loss, window, self.dual).sum(), metrics


def _log(entropy: Tensor) -> Tensor:
    return entropy.clamp(min=LEAST_ENTROPY).log()


def _quantile(values: Tensor, q: float) -> float:
    """Linear-interpolation quantile of any size (torch.quantile stops at 16 million)."""
    at = q * (values.numel() - 1)
    below = int(at)
    pair = [float(values.kthvalue(min(k, values.numel() - 1) + 1).values) for k in (below, below + 1)]
    return pair[0] + (at - below) * (pair[1] - pair[0])
