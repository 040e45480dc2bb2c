"""GiGPO: group-in-group policy optimisation (arXiv 2505.10978)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.fold import Averaging
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Gigpo:
    """A group's episodes are compared as wholes, and their turns wherever they answered the same state.

    Needs states named without history or step counters; where none repeats it is GRPO's credit exactly. The paper adds
    a KL penalty of 0.01 (default here none, which saves a reference policy) and takes 0.1 off an invalid action's step
    (nano environments leave the walker where it is). In the evidence only the step term differs from the baseline:
    outcomes alone, divided by the deviation, averaged per response.
    """

    card: ClassVar[Card] = Card(
        "gigpo", "Group-in-group policy optimisation", "2505.10978", 2025,
        "over 12 % (ALFWorld) and 9 % (WebShop) above GRPO with no further rollouts", ("credit",), "grpo",
        Evidence(
            "pass@1", "grpo", least=0.04, task="regime:noisy", seeds=6,
            settings=("gigpo:step_rewards=False", "gigpo:std=True", "gigpo:averaging=sequence"),
        ),
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    omega: float = 1.0
    """Weight of the step term."""
    gamma: float = 0.95
    std: bool = False
    """Divide both terms by their group's deviation."""
    step_rewards: bool = True
    """Whether rewards on the way count; without, the outcome alone does."""
    clip: float = 0.2
    kl: float = 0.0
    averaging: Averaging = "token"

    def build(self) -> Parts:
        """Independent episodes, episode and step credit, clipped surrogate."""
        check_group("gigpo", self.group)
        credit = load_credit(
            "gigpo", omega=self.omega, gamma=self.gamma, std=self.std, step_rewards=self.step_rewards
        )  # fmt: skip
        return Parts(
            "gigpo", Independent(self.group, needs=frozenset({"turns", "state_key"})), credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging=self.averaging,
        )  # fmt: skip
