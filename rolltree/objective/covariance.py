"""Clip-Cov and KL-Cov: restrain the few actions whose covariance of advantage and log-prob drives entropy down.

"The Entropy Mechanism of RL for Reasoning Language Models", arXiv 2505.22617. The covariance belongs to one
advantage, so both work on path entries: (A − mean A)·(log π − mean log π), plain means over all entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Level, Objective, ObjectiveError, Paths, need_paths
from rolltree.objective.merge import merge
from rolltree.objective.penalty import Estimator, kl
from rolltree.objective.ratio import ratio
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, share, two_channel


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries are restrained, as numbers that hold for every micro-batch of a step."""

    mean_advantage: float
    mean_logp: float
    threshold: float
    """Entries count when their covariance (KL-Cov) is at least, or their lot (Clip-Cov) at most, this."""


@dataclass(frozen=True, slots=True)
class ClipCov:
    """PPO-clip with the gradient of a random share of the entries in a covariance band removed.

    The lot of an entry is a hash of its log-probs, advantage and `seed`: a pure function of the batch that changes from
    step to step. Entries the clip already holds are not drawn.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0
    seed: int = 0
    selection: Selection | None = None
    level: Level = "path"

    def __post_init__(self) -> None:
        check_window("clip_cov", self.clip_low, self.clip_high)
        _check_share("clip_cov", self.share)
        if self.low >= self.high:
            raise ObjectiveError(f"clip_cov: the covariance band [{self.low}, {self.high}] is empty")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing beyond paths."""
        return frozenset()

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """Means and the lot that is just drawn, over the whole step."""
        return replace(self, selection=self._select(batches))

    def _select(self, batches: Sequence[Batch]) -> Selection:
        whole = merge(batches)
        paths = need_paths(whole, "clip_cov")
        a, logp = _means(whole, paths)
        lots = torch.cat([self._lots(batch, a, logp) for batch in batches])
        drawn = max(int(self.share * len(lots)), 1)
        eligible = lots[torch.isfinite(lots)]
        some = len(eligible) > 0
        threshold = float(eligible.topk(min(drawn, len(eligible)), largest=False).values.max()) if some else -1.0
        return Selection(a, logp, threshold)

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the clip shares and the share drawn."""
        paths = need_paths(batch, "clip_cov")
        chosen = self.selection or self._select([batch])
        free = self._lots(batch, chosen.mean_advantage, chosen.mean_logp) > chosen.threshold
        r = ratio(batch.logp - batch.old)[paths.index]
        gain, loss = _channels(paths)
        window = ClipWindow(self.clip_low, self.clip_high)
        metrics = clip_metrics(r, gain, loss, paths.entry_weight, window)
        metrics["cov_selected"] = share(paths.entry_weight, ~free)
        return -(two_channel(r, gain, loss, window) * free).sum(), metrics

    def _lots(self, batch: Batch, mean_advantage: float, mean_logp: float) -> Tensor:
        """(P,) a number in [0, 1) per entry that may be drawn, +inf for the others."""
        paths = need_paths(batch, "clip_cov")
        logp, a = batch.logp.detach().double()[paths.index], paths.advantage.double()
        cov = (a - mean_advantage) * (logp - mean_logp)
        r = ratio(batch.logp.detach() - batch.old)[paths.index]
        held = ((a > 0) & (r > 1 + self.clip_high)) | ((a < 0) & (r < 1 - self.clip_low))
        place = torch.arange(len(a), dtype=torch.float64, device=a.device)
        mixed = (logp * 12.9898 + a * 78.233 + place * 37.719 + self.seed * 4.1414).sin() * 43758.5453
        return torch.where((cov > self.low) & (cov < self.high) & ~held, mixed - mixed.floor(), torch.inf)


@dataclass(frozen=True, slots=True)
class KlCov:
    """−Σ r·A, plus a KL penalty to the proximal policy on the entries with the largest covariance.

    `estimator="abs"` is |log π − log π_old|, as released; k2 and k3 estimate KL(π_old‖π), as written.
    """

    share: float = 2e-4
    coefficient: float = 1.0
    estimator: str = "abs"
    selection: Selection | None = None
    level: Level = "path"

    def __post_init__(self) -> None:
        _check_share("kl_cov", self.share)
        if self.estimator not in ("abs", "k2", "k3"):
            raise ObjectiveError(f"kl_cov: no estimator {self.estimator!r}: choose abs, k2 or k3")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing beyond paths."""
        return frozenset()

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """Means and the covariance of the last entry chosen, over the whole step."""
        return replace(self, selection=self._select(batches))

    def _select(self, batches: Sequence[Batch]) -> Selection:
        whole = merge(batches)
        paths = need_paths(whole, "kl_cov")
        a, logp = _means(whole, paths)
        cov = _covariance(whole, paths, a, logp)
        chosen = min(max(int(self.share * len(cov)), 1), len(cov))
        threshold = float(cov.topk(chosen).values.min()) if chosen else torch.inf
        return Selection(a, logp, threshold)

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the share chosen and its penalty."""
        paths = need_paths(batch, "kl_cov")
        chosen = self.selection or self._select([batch])
        picked = _covariance(batch, paths, chosen.mean_advantage, chosen.mean_logp) >= chosen.threshold
        delta = (batch.logp - batch.old)[paths.index]
        weight = paths.entry_weight
        restrained = weight * picked * self._distance(delta)
        loss = -(weight * paths.advantage * ratio(delta)).sum() + self.coefficient * restrained.sum()
        return loss, {"cov_selected": share(weight, picked), "kl_selected": restrained.sum().detach()}

    def _distance(self, delta: Tensor) -> Tensor:
        if self.estimator == "abs":
            return delta.abs()
        estimator: Estimator = "k2" if self.estimator == "k2" else "k3"
        return kl(-delta, estimator)


def _means(batch: Batch, paths: Paths) -> tuple[float, float]:
    if not len(paths.index):
        return 0.0, 0.0
    return float(paths.advantage.mean()), float(batch.logp.detach()[paths.index].mean())


def _covariance(batch: Batch, paths: Paths, mean_advantage: float, mean_logp: float) -> Tensor:
    return (paths.advantage - mean_advantage) * (batch.logp.detach()[paths.index] - mean_logp)


def _channels(paths: Paths) -> tuple[Tensor, Tensor]:
    return paths.entry_weight * paths.advantage.clamp(min=0), paths.entry_weight * paths.advantage.clamp(max=0)


def _check_share(who: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ObjectiveError(f"{who}: share={value} must lie in (0, 1]; it is the share of actions restrained")
