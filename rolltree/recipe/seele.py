"""SEELE: capability-adaptive hints (arXiv 2509.06923)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.seele import Seele
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class SeeleRecipe:
    """Rounds of rollouts after as much of a right answer as makes them a coin toss; the hint is cloned a little.

    All rollouts of a prompt share one baseline though their hints differ in length. Judge it by unhinted accuracy.
    """

    card: ClassVar[Card] = Card(
        "seele", "Capability-adaptive hint scaffolding", "2509.06923", 2025,
        "+11.8 points over GRPO and +3.6 over the best hint method on six mathematics sets",
        ("generate", "control", "credit"), "dr_grpo",
        Evidence("a(1−a) at the third visit", "half of the answer always shown", "higher", 0.02, seeds=5,
                 check="studies.prompts.checks:seele"),
        counter=Counter("budget/arm/hint"),
    )  # fmt: skip
    group: int = 16
    rounds: int = 4
    accuracy: float = 0.5
    """Pass rate that the hint is to bring a prompt to."""
    gamma: float = 0.001
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.001 in the paper."""

    def build(self) -> Parts:
        """Hinted rounds, group mean, the hint's likelihood."""
        check_group("seele", self.group, 2 * self.rounds)
        return Parts(
            "seele", Independent(self.group), load_credit("hint_likelihood", base="dr_grpo", gamma=self.gamma),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
            control=Seele(self.rounds, accuracy=self.accuracy, gamma=self.gamma),
        )  # fmt: skip
