"""A clip window that is as wide as the outcome is good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need_paths
from rolltree.objective.ratio import ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, clip_metrics, two_channel


@register("reward_bounds")
@dataclass(frozen=True, slots=True)
class RewardBounds:
    """The clipped surrogate with ε = low + (high − low)·sigmoid(sharpness·A), A the advantage of a path.

    Dynamic-TreeRPO's bounds depend on the outcome of a trajectory (arXiv 2509.23352, eq. 11); the form, and the
    advantage in the outcome's place, are reconstructed.
    """

    low: float = 0.1
    """Half the window of a very bad path."""
    high: float = 0.3
    """Half the window of a very good path."""
    sharpness: float = 1.0
    """How fast the window widens with the advantage."""
    level: Level = "path"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < 1:
            raise ObjectiveError(f"reward_bounds: low={self.low} and high={self.high} must be in (0, 1), low first")

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and the shares clipped on either side."""
        paths = need_paths(batch, "reward_bounds")
        advantage, weight = paths.advantage, paths.entry_weight
        bound = self.low + (self.high - self.low) * torch.sigmoid(self.sharpness * advantage)
        window, r = ClipWindow(bound, bound), ratio(batch.logp - batch.old)[paths.index]
        gain, loss = weight * advantage.clamp(min=0), weight * advantage.clamp(max=0)
        return -two_channel(r, gain, loss, window, None).sum(), clip_metrics(r, gain, loss, weight, window)
