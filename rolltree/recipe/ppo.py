"""PPO with a critic and generalised advantages (arXiv 1707.06347, 1506.02438)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.gae import CutValue
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, RecipeError


@dataclass(frozen=True, slots=True)
class Ppo:
    """Advantages against a learned value of every state instead of a group: one rollout a prompt is enough.

    The critic has a trunk of its own, begun as the policy's, and costs about as much again as the policy's update.
    """

    card: ClassVar[Card] = Card(
        "ppo", "Proximal policy optimisation", "1707.06347", 2017,
        "a clipped surrogate is as stable as a trust region and simpler", ("credit", "objective"),
        counter=Counter("optim/critic_loss"),
    )  # fmt: skip
    group: int = 8
    gamma: float = 1.0
    decay: float = 0.95
    """λ of the advantage: 1 trusts returns alone, 0 the critic alone."""
    whiten: bool = True
    cut: CutValue = "zero"
    """What comes behind a rollout that a limit of tokens or turns cut: "zero", the "critic"'s last value, or of that
    what is negative ("pessimist")."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, generalised advantages under the trainer's critic, clipped surrogate."""
        if self.group < 1:
            raise RecipeError(f"ppo: group={self.group} samples nothing; give at least 1")
        credit = load_credit("gae", gamma=self.gamma, decay=self.decay, whiten=self.whiten, cut=self.cut)
        return Parts(
            "ppo", Independent(self.group), credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
