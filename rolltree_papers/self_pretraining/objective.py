"""Online preference between leaves that share a prefix: DPO on the suffixes a judge told apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Paths, need, need_paths
from rolltree.objective.ratio import path_mean, path_sum
from rolltree.objective.registry import register


@register("pairwise")
@dataclass(frozen=True, slots=True)
class PairwiseLoss:
    """−log σ(β[(log π − log π_ref)(chosen) − (log π − log π_ref)(rejected)]) (DPO, arXiv 2305.18290, eq. 7; online on
    suffixes as in Self-Improving Pretraining, arXiv 2601.21343).

    In each group of leaves every one with a positive advantage is preferred to every one with a negative advantage;
    credit the best +1 and the worst −1 for the paper's single pair. A group's loss is the mean over its pairs times the
    group's share of the weight; what the two leaves share cancels. `length_mean` compares means instead of sums, for
    candidates of unequal length. `imitate` adds that much of the chosen leaf's mean −log π (RF-NLL).
    """

    beta: float = 0.1
    length_mean: bool = False
    imitate: float = 0.0
    level: Level = "path"

    def __post_init__(self) -> None:
        if self.beta <= 0 or self.imitate < 0:
            raise ObjectiveError(f"pairwise: beta={self.beta} must be > 0 and imitate={self.imitate} ≥ 0")

    @property
    def needs(self) -> frozenset[str]:
        """A reference and which leaves compete."""
        return frozenset({"reference", "group"})

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the share of pairs ranked right and the mean margin."""
        paths = need_paths(batch, "pairwise")
        group = need(paths.group, "group", "pairwise")
        delta = (batch.logp - need(batch.reference, "reference", "pairwise"))[paths.index]
        score = path_mean(delta, paths) if self.length_mean else path_sum(delta, paths)
        better, worse, weight = pairs(paths, group)
        margin = self.beta * (score[better] - score[worse])
        loss = -(weight * logsigmoid(margin)).sum()
        if self.imitate:
            nll = -path_mean(batch.logp[paths.index], paths)
            loss = loss + self.imitate * (weight * nll[better]).sum()
        total = weight.sum()
        scale = torch.where(total > 0, 1 / torch.where(total > 0, total, 1), 0)
        right = (weight * (margin.detach() > 0)).sum() * scale
        return loss, {"pair_accuracy": right, "pair_margin": (weight * margin.detach()).sum() * scale}


def pairs(paths: Paths, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of the better and the worse leaf of every pair of a group, and the pair's weight."""
    signed = path_sum(paths.advantage, paths)
    mass = paths.mass
    is_pair = (group[:, None] == group[None, :]) & (signed > 0)[:, None] & (signed < 0)[None, :]
    better, worse = is_pair.nonzero(as_tuple=True)
    _, number = torch.unique(group, return_inverse=True)
    size = int(number.max()) + 1 if len(number) else 0
    per_group = mass.new_zeros(size).index_add(0, number, mass)
    count = mass.new_zeros(size).index_add(0, number[better], torch.ones_like(mass[better]))
    return better, worse, per_group[number[better]] / count[number[better]]
