"""REINFORCE++: advantages whitened over the whole step (Hu et al. 2025, arXiv 2501.03262)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class ReinforcePlusPlus:
    """One scale for the step instead of one per group, so no prompt is amplified for having nearly equal outcomes.

    `baseline` subtracts the group's mean first (REINFORCE++-baseline); without it one sample per prompt is enough. The
    paper subtracts a KL per token from the outcome; here `kl` is a penalty of the objective (k2, the paper's later
    choice for the baseline variant).
    """

    card: ClassVar[Card] = Card(
        "reinforce_pp", "REINFORCE++", "2501.03262", 2025,
        "normalising advantages over the whole batch is more stable than per prompt and overfits less",
        ("credit", "objective"), "grpo",
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    baseline: bool = True
    """Whether the group's mean is subtracted first."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, step-whitened credit, clipped surrogate, token averaging."""
        if self.baseline:
            check_group("reinforce_pp", self.group)
        elif self.group < 1:
            raise RecipeError(f"reinforce_pp: group={self.group} samples nothing; give at least 1")
        return Parts(
            "reinforce_pp", Independent(self.group),
            load_credit("reinforce_pp_baseline" if self.baseline else "reinforce_pp"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl, kl_estimator="k2"),
            averaging="token",
        )  # fmt: skip
