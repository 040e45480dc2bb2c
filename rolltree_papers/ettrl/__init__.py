"""ETTRL: entropy mechanism for test-time reinforcement learning (arXiv 2508.11356)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.vote import MajorityVote
from rolltree.generate.stems import TwoWaves
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError


@dataclass(frozen=True, slots=True)
class Ettrl:
    """Learns without labels: stems, branches at their most uncertain positions, the majority of all leaves as label.

    Leaves = stems·(1 + positions·branches). If positions were uniform along a stem, decoding would cost
    (1 + ½·positions·branches)/(1 + positions·branches) of independent sampling; in fact they cluster early, which
    `apart` counters. `response=True` scales advantages by relative entropy (Adv-Res), else they are clipped to ±2
    (Adv-Clip). `weigh="fork"` stops a wrong stem from casting 1 + positions·branches correlated votes. Where the
    majority is wrong, training makes it certain; `solved` and `true_reward` report the truth.
    """

    card: ClassVar[Card] = Card(
        "ettrl", "Entropy mechanism for test-time RL", "2508.11356", 2025,
        "AIME 2024 from 10.0 to 16.9 (Llama-3.1-8B) with 60 % of the tokens of plain test-time RL",
        ("generate", "filter", "credit"), "ttrl",
        Evidence("pass@1", "ttrl", least=0.04, task="regime:fresh", seeds=6,
                 settings=("ettrl:stems=3", "ttrl:votes=15", "ttrl:samples=15")),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    stems: int = 12
    """Rollouts from the root."""
    positions: int = 2
    """Places on each stem that are forked."""
    branches: int = 2
    """Branches at each of these places."""
    apart: int = 1
    """Least distance between two places, in tokens."""
    response: bool = True
    """Whether advantages are scaled by the response's relative entropy; else they are clipped to ±2."""
    bound: float = 2.0
    """Of Adv-Clip."""
    ties: Literal["first", "shared", "drop"] = "first"
    """Equal shares: the answer of the earlier leaf wins (released code), every tied answer is right, or no
    group."""
    silent: Literal["wrong", "vote", "drop"] = "wrong"
    """Leaves without an answer: do not vote and are wrong; vote for "no answer" (ECHO's released code, where it
    can win); or are not trained on."""
    weigh: Literal["leaf", "fork"] = "leaf"
    """A vote per leaf, or one vote shared out evenly at each fork, so that branches of one wrong stem do not
    outvote independent leaves."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Two waves, majority labels, group credit scaled by response entropy."""
        if self.stems * (1 + self.positions * self.branches) < 2:
            raise RecipeError(f"ettrl: stems={self.stems} gives one leaf, which agrees with itself; give 2 or more")
        waves = TwoWaves(self.stems, self.positions, self.branches, self.apart)
        return Parts(
            "ettrl", waves, load_credit("entropy_response", base="grpo", clip=0.0 if self.response else self.bound),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(MajorityVote(self.ties, self.silent, self.weigh),),
        )  # fmt: skip
