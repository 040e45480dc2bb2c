"""BroRL: many rollouts of each prompt instead of more steps (arXiv 2510.01180)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class BroRl:
    """ProRL's training with groups 32 times as wide (512 rollouts where it had 16).

    A step takes mass from right answers only through what it did not sample, and of that a wide group leaves little (a
    property test). The rest is ProRLv2: the upper clip higher, prompts all right or all wrong replaced, advantages
    around the group's mean over the step's deviation, truncated weights of trainer over sampler, and a KL whose
    reference is replaced now and then (its weight, its form and that it happens at each quarter of a run are
    reconstructed). Give few prompts a step, or its rollouts fit no budget. Its evidence is a bandit of 300 answers, 3
    of them right, with the recipe's filter and credit: two steps of 128 rollouts against 16 steps of 16.
    """

    card: ClassVar[Card] = Card(
        "brorl", "Broadened exploration", "2510.01180", 2025,
        "a 1.5B model that stood still after 3,000 steps goes on to learn, at nearly twice the throughput",
        ("control", "credit", "objective"), "dapo",
        Evidence("mass of right answers after as many rollouts, each width at its best rate", "groups of 16", "higher",
                 0.02, seeds=5, check="rolltree_papers.brorl.study:brorl"),
        counter=Counter("rollout/group_size", rest=8.0),
    )  # fmt: skip
    group: int = 128
    """Rollouts of a prompt: 512 in the paper, where 16 are the usual."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    rounds: int = 4
    kl: float = 1e-3
    high: float = 2.0
    """Largest ratio of trainer to sampler that multiplies an action's credit."""
    reset: Knob = "0, 1 at 25%, 2 at 50%, 3 at 75%"
    """Where this number changes, the KL's reference becomes the policy of then."""

    @at_start
    def build(self) -> Parts:
        """Wide groups, mixed ones only, step-wide deviation, truncated weights, asymmetric clip, KL."""
        from rolltree.objective.correction import ImportanceWeight

        check_group("brorl", self.group)
        return Parts(
            "brorl", Independent(self.group), load_credit("reinforce_pp_baseline"),
            load_objective(
                "clipped", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl, kl_estimator="k2",
                correction=ImportanceWeight("token", "truncate", high=self.high),
            ),
            averaging="token", filters=(Mixed(),), rounds=self.rounds, anchor=f"reset {self.reset}",
        )  # fmt: skip
