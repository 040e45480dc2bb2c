"""Clip-Cov and KL-Cov: restrain the few actions whose covariance of advantage and log-prob drives entropy down.

"The Entropy Mechanism of RL for Reasoning Language Models", arXiv 2505.22617. The covariance belongs to one
advantage, so both work on path entries: (A − mean A)·(log π − mean log π), plain means over all entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Objective, Paths, need_paths
from rolltree.objective.penalty import Estimator, kl
from rolltree.objective.ratio import ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, check_window, clip_metrics, share, two_channel

Rank = Callable[[Batch, Paths, float, float], Tensor]
"""(P,) a number per entry, given the mean advantage and mean log-prob; the lowest are chosen, +inf never is."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries are restrained, as numbers that hold for every micro-batch of a step."""

    mean_advantage: float
    mean_logp: float
    threshold: float
    """Entries whose rank is at most this are restrained."""

    def __call__(self, batch: Batch, paths: Paths, rank: Rank) -> Tensor:
        """(P,) bool: the entries restrained."""
        return rank(batch, paths, self.mean_advantage, self.mean_logp) <= self.threshold


def select(who: str, batches: Sequence[Batch], part: float, rank: Rank) -> Selection:
    """Means over all entries of a step, and the rank up to which a share of them is restrained: at least one."""
    pairs = [(batch, need_paths(batch, who)) for batch in batches]
    count = sum(len(paths.index) for _, paths in pairs)
    a = sum(float(paths.advantage.sum()) for _, paths in pairs) / max(count, 1)
    logp = sum(float(batch.logp.detach()[paths.index].sum()) for batch, paths in pairs) / max(count, 1)
    ranks = torch.cat([rank(batch, paths, a, logp) for batch, paths in pairs])
    eligible = ranks[torch.isfinite(ranks)]
    drawn = min(max(int(part * count), 1), len(eligible))
    threshold = float(eligible.topk(drawn, largest=False).values.max()) if drawn else -torch.inf
    return Selection(a, logp, threshold)


@register("clip_cov")
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
        return replace(self, selection=select("clip_cov", batches, self.share, self._lots))

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the clip shares and the share drawn."""
        paths = need_paths(batch, "clip_cov")
        chosen = self.selection or select("clip_cov", [batch], self.share, self._lots)
        drawn = chosen(batch, paths, self._lots)
        r = ratio(batch.logp - batch.old)[paths.index]
        credit = paths.entry_weight * paths.advantage
        gain, loss = credit.clamp(min=0), credit.clamp(max=0)
        window = ClipWindow(self.clip_low, self.clip_high)
        metrics = clip_metrics(r, gain, loss, paths.entry_weight, window)
        metrics["cov_selected"] = share(paths.entry_weight, drawn)
        return -(two_channel(r, gain, loss, window) * ~drawn).sum(), metrics

    def _lots(self, batch: Batch, paths: Paths, mean_advantage: float, mean_logp: float) -> Tensor:
        """(P,) a number in [0, 1) per entry that may be drawn, +inf for the others."""
        cov = covariance(batch, paths, mean_advantage, mean_logp)
        r = ratio(batch.logp.detach() - batch.old)[paths.index]
        a = paths.advantage
        held = ((a > 0) & (r > 1 + self.clip_high)) | ((a < 0) & (r < 1 - self.clip_low))
        place = ((cov > self.low) & (cov < self.high) & ~held).nonzero().squeeze(1)
        logp = batch.logp.detach().double()[paths.index[place]]
        mixed = logp * 12.9898 + a.double()[place] * 78.233 + place * 37.719 + self.seed * 4.1414
        mixed = mixed.sin() * 43758.5453
        out = torch.full_like(a, torch.inf, dtype=torch.float64)
        out[place] = mixed - mixed.floor()
        return out


@register("kl_cov")
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
        return replace(self, selection=select("kl_cov", batches, self.share, _largest))

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the share chosen and its penalty."""
        paths = need_paths(batch, "kl_cov")
        chosen = self.selection or select("kl_cov", [batch], self.share, _largest)
        picked = chosen(batch, paths, _largest)
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


def covariance(batch: Batch, paths: Paths, mean_advantage: float, mean_logp: float) -> Tensor:
    """(P,) (A − mean A)·(log π − mean log π) of every entry; detached."""
    return (paths.advantage - mean_advantage) * (batch.logp.detach()[paths.index] - mean_logp)


def _largest(batch: Batch, paths: Paths, mean_advantage: float, mean_logp: float) -> Tensor:
    return -covariance(batch, paths, mean_advantage, mean_logp)


def _check_share(who: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ObjectiveError(f"{who}: share={value} must lie in (0, 1]; it is the share of actions restrained")
