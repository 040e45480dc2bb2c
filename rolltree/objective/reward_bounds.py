"""A clip window that is as wide as the outcome is good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Level, ObjectiveError
from rolltree.objective.ratio import ratio
from rolltree.objective.registry import register
from rolltree.objective.window import ClipWindow, clip_metrics, two_channel


@register("reward_bounds")
@dataclass(frozen=True, slots=True)
class RewardBounds:
    """The clipped surrogate with ε = low + (high − low)·sigmoid(sharpness·A) for each action.

    Dynamic-TreeRPO's bounds depend on the outcome of a trajectory (arXiv 2509.23352, eq. 11); the form, and the
    advantage A in the outcome's place, are reconstructed.
    """

    low: float = 0.1
    high: float = 0.3
    sharpness: float = 1.0
    level: Level = "token"
    needs: ClassVar[frozenset[str]] = frozenset()
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < 1:
            raise ObjectiveError(f"reward_bounds: low={self.low} and high={self.high} must be in (0, 1), low first")

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and the shares clipped on either side."""
        bound = self.low + (self.high - self.low) * torch.sigmoid(self.sharpness * batch.advantage)
        window, r = ClipWindow(bound, bound), ratio(batch.logp - batch.old)
        gained = two_channel(r, batch.gain, batch.loss, window, None)
        return -gained.sum(), clip_metrics(r, batch.gain, batch.loss, batch.weight, window)
