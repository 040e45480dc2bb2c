"""GRPO: group-relative advantages (Shao et al. 2024, DeepSeekMath, arXiv 2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.normalise import Ddof
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, check_group


@dataclass(frozen=True, slots=True)
class Grpo:
    """A group of samples per prompt; each is worth its outcome less the group's mean, over the group's deviation.

    Averaged as published: over a response's tokens, then over responses. The paper's KL coefficient is 0.04; the
    default here is none, which is what most later work uses and saves a reference policy.
    """

    card: ClassVar[Card] = Card(
        "grpo", "Group relative policy optimisation", "2402.03300", 2024,
        "outcomes of a group replace a value function", ("credit", "objective"),
        counter=Counter("budget/trained"),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    kl: float = 0.0
    ddof: Ddof = 1
    """1 divides the variance by group − 1, 0 by group; released code differs."""

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, clipped surrogate."""
        check_group("grpo", self.group)
        return Parts(
            "grpo", Independent(self.group), load_credit("grpo", ddof=self.ddof),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
        )  # fmt: skip
