"""Soft adaptive policy optimisation (arXiv 2511.20347), one of two methods called SAPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.against import Against, against
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Sapo:
    """A smooth gate in the place of the clip: an action loses its gradient gradually as its ratio leaves 1.

    The gate of negative advantages closes faster. This is not "Sharing is Caring" (arXiv 2509.08721), the other SAPO,
    in which peers share rollouts as text: that one is the recipe `swarm`. `against="sampled"` opens the gate around the
    distribution sampled from.
    """

    card: ClassVar[Card] = Card(
        "soft_sapo", "Soft adaptive policy optimisation", "2511.20347", 2025,
        "more stable and higher pass@1 than GSPO and GRPO at an equal training budget",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("policy/gate_negative", rest=1.0),
    )  # fmt: skip
    group: int = 8
    tau_positive: float = 1.0
    """How fast the gate of positive advantages closes."""
    tau_negative: float = 1.05
    """How fast the gate of negative advantages closes."""
    updates: int = 4
    against: Against = "old"

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, gated surrogate, sequence averaging, several updates."""
        check_group("soft_sapo", self.group)
        return Parts(
            "soft_sapo", Independent(self.group), load_credit("grpo"),
            load_objective(
                "sapo", tau_positive=self.tau_positive, tau_negative=self.tau_negative, correction=against(self.against)
            ),
            averaging="sequence", optim={"minibatches": self.updates},
        )  # fmt: skip
