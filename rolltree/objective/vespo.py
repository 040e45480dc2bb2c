"""VESPO: whole-path weights under a smooth hump instead of a clip (arXiv 2602.10693)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need_paths
from rolltree.objective.ratio import LIMIT, path_sum
from rolltree.objective.registry import register
from rolltree.objective.window import share

LEAST = 1e-8
"""Smallest weight of a path that is told from none."""


@register("vespo")
@dataclass(frozen=True, slots=True)
class Vespo:
    """−Σ_paths sg(φ(W))·A·log π, φ(W) = W^k e^(λ(1 − W)), W = exp Σ_t log π/π_old.

    φ is 1 at W = 1, grows like a power below and fades exponentially above, so that no path is cut and none counts
    without bound. k and λ differ by the sign of the advantage. Its largest value stands at W = k/λ. Constants are those
    of TRL. With `correction="bypass"` W is taken against the distribution that sampled.
    """

    power_gain: float = 2.0
    """k where the advantage is not negative."""
    fade_gain: float = 3.0
    """λ where the advantage is not negative."""
    power_loss: float = 3.0
    """k where it is negative."""
    fade_loss: float = 2.0
    """λ where it is negative."""
    level: Level = "path"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.power_gain, self.power_loss) < 0 or min(self.fade_gain, self.fade_loss) <= 0:
            raise ObjectiveError(
                f"vespo: powers ({self.power_gain}, {self.power_loss}) must be 0 or more, and fades ({self.fade_gain}, "
                f"{self.fade_loss}) above 0"
            )

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the mean weight of the paths."""
        paths = need_paths(batch, "vespo")
        moved = (batch.logp - batch.old).detach().clamp(-LIMIT, LIMIT)
        log_w = path_sum(moved[paths.index], paths).clamp(math.log(LEAST), LIMIT)[paths.path]
        up = paths.advantage >= 0
        power, fade = torch.where(up, self.power_gain, self.power_loss), torch.where(up, self.fade_gain, self.fade_loss)
        phi = (fade + power * log_w - fade * log_w.exp()).exp()
        credit = paths.entry_weight * paths.advantage * phi
        metrics = {"sequence_weight_mean": share(paths.entry_weight, log_w.exp())}
        return -(credit * batch.logp[paths.index]).sum(), metrics
