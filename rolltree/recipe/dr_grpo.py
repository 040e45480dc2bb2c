"""Dr. GRPO: GRPO without its two biases (Liu et al. 2025, Understanding R1-Zero-Like Training, arXiv 2503.20783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, check_group


@dataclass(frozen=True, slots=True)
class DrGrpo:
    """No division by the group's deviation (it favours prompts that are nearly solved or nearly hopeless), and one
    constant divisor for every response (dividing by its length favours long wrong answers).
    """

    card: ClassVar[Card] = Card(
        "dr_grpo", "Dr. GRPO", "2503.20783", 2025,
        "without length and deviation normalisation, wrong answers stop growing longer at equal reward",
        ("credit", "objective"), "grpo",
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    kl: float = 0.0
    fixed_length: int | None = None
    """The constant divisor; None = the limit of tokens per response."""

    def build(self) -> Parts:
        """Independent rollouts, mean-centred credit, clipped surrogate, fixed averaging."""
        check_group("dr_grpo", self.group)
        return Parts(
            "dr_grpo", Independent(self.group), load_credit("dr_grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl),
            averaging="fixed", fixed_length=self.fixed_length,
        )  # fmt: skip
