"""CISPO: clipped importance weights (MiniMax-M1, arXiv 2506.13585)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.against import Against, against
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Cispo:
    """The weight of an action is bounded and never its gradient, so rare decisive actions go on learning.

    `low` and `high` are ratios; the paper leaves the lower one off. With a single update on fresh rollouts it is
    REINFORCE with a group baseline; the paper takes 16 updates of a batch. `against="sampled"` lets the weight correct
    for stale rollouts as well.
    """

    card: ClassVar[Card] = Card(
        "cispo", "Clipped importance-sampling policy optimisation", "2506.13585", 2025,
        "DAPO's accuracy in half the steps (Qwen2.5-32B, AIME 2024)",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("policy/ratio_bounded"),
    )  # fmt: skip
    group: int = 8
    low: float = 0.0
    """Smallest weight of an action; 0 = no bound."""
    high: float = 5.0
    """Largest weight of an action."""
    updates: int = 4
    against: Against = "old"

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, bounded constant weights, several updates."""
        check_group("cispo", self.group)
        return Parts(
            "cispo", Independent(self.group), load_credit("grpo"),
            load_objective("cispo", low=self.low, high=self.high, correction=against(self.against)),
            averaging="token", optim={"minibatches": self.updates},
        )  # fmt: skip
