"""Forced actions with a shaped weight instead of a clip: what another policy wrote, learned where it is unlikely.

LUFFY's (arXiv 2504.14945), for SCOPE's repaired steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, where

from rolltree.objective.batch import Batch, Level, ObjectiveError, need
from rolltree.objective.window import share


@dataclass(frozen=True, slots=True)
class ShapedForced:
    """The gradient of A·f(π) with f(π) = π/(π + γ) on forced actions, at the policy that the step began with.

    f'(π)·π = γπ/(π + γ)²: the credit of a forced action is multiplied by it, so that an action the policy already takes
    and one it never takes teach less than those between. The surrogate's ratio is 1 at a step's first update, where
    nothing is clipped. It works under any surrogate of tokens, as a correction does.
    """

    gamma: float = 0.1
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.gamma <= 0:
            raise ObjectiveError(f"shaped forced actions: gamma={self.gamma} must be > 0")

    @property
    def level(self) -> Level:
        """Single actions."""
        return "token"

    @property
    def needs(self) -> frozenset[str]:
        """Which actions were forced."""
        return frozenset({"forced"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch with forced actions weighted, and the share of weight that they have."""
        forced = need(batch.forced, "forced", "shaping forced actions")
        likely = batch.old.exp()
        weight = where(forced, self.gamma * likely / (likely + self.gamma) ** 2, 1.0)
        shaped = replace(batch, gain=batch.gain * weight, loss=batch.loss * weight)
        return shaped, {"forced_share": share(batch.weight, forced)}
