"""ReMax: the greedy rollout as baseline (arXiv 2310.10505)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.generate.methods.remax import WithGreedy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError


@dataclass(frozen=True, slots=True)
class ReMax:
    """REINFORCE with one more rollout per prompt: what the most likely answer earns is taken off what samples earn.

    No critic and no group; the greedy rollout costs as much as a sampled one. A good baseline where the greedy answer
    is typical. The evidence is the noise on an exact tree of decisions whose greedy way earns, against
    leave-one-out over as many rollouts.
    """

    card: ClassVar[Card] = Card(
        "remax", "ReMax", "2310.10505", 2023,
        "PPO's quality at half its memory and 1.6 times its speed; less variance than REINFORCE",
        ("generate", "credit"), "rloo",
        Evidence("noise of the gradient at equal rollouts", "leave-one-out", "lower", 0.05, seeds=5,
                 check="studies.exact.checks:remax"),
        counter=Counter("rollout/dropped/the greedy baseline"),
    )  # fmt: skip
    group: int = 1
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """A greedy rollout beside the sampled ones, outcomes less the greedy one's, clipped surrogate."""
        if self.group < 1:
            raise RecipeError(f"remax: group={self.group} samples nothing; give at least 1")
        return Parts(
            "remax", WithGreedy(Independent(self.group)), load_credit("remax"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
