"""GRPO-RoC: resample on correct, the selection of rStar2-Agent (arXiv 2508.20722)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.horizon import Horizon
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.filter.methods.grpo_roc import Cleanest
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.varying import Knob


@dataclass(frozen=True, slots=True)
class GrpoRoc:
    """Twice as many rollouts as are trained on; of the right ones those with fewest tool errors and format faults stay.

    Nothing is penalised in the reward, so there is nothing to hack; advantages are those of the kept group. The
    evidence is a bandit, whose baseline knows the penalties too and takes half of them off its reward. The paper's
    stages of length (8k, 12k, 12k) are `tokens="8192, 12288 at 300"`, off by default, and when they change is
    reconstructed; its judge service is not part of the recipe. The format part of the penalty is 1 − the score
    `format` (reconstructed); the released one is 1 for a missing answer tag, else min((answers − 1) / turns, 1).
    """

    card: ClassVar[Card] = Card(
        "grpo_roc", "Resample on correct", "2508.20722", 2025,
        "80.6 on AIME 2024 with 14B in 510 steps, with shorter answers than much larger models",
        ("generate", "filter"), "dapo",
        Evidence("right answers after training, times how clean they are", "as many at random, penalised",
                 "higher", 0.02, seeds=5, check="studies.exact.clean:grpo_roc"),
        counter=Counter("rollout/dropped/enough cleaner rollouts of its kind"),
    )  # fmt: skip
    group: int = 32
    """Rollouts sampled."""
    keep: int = 16
    """Rollouts that are trained on."""
    tokens: Knob = 0
    """Most policy tokens of a rollout, by the step; 0 = as many as the run allows."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    @at_start
    def build(self) -> Parts:
        """Oversampled rollouts, mixed groups, selection, group credit on what is kept."""
        if self.keep < 3:
            raise RecipeError(f"grpo_roc: keep={self.keep} may keep wrong rollouts alone; give at least 3")
        if self.group < self.keep:
            raise RecipeError(f"grpo_roc: {self.keep} of {self.group} rollouts cannot be kept; sample at least as many")
        return Parts(
            "grpo_roc", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="token",
            filters=(Mixed(),), shapers=(Cleanest(self.keep),),
            control=Horizon(turns=0, tokens=round(float(self.tokens))),
        )  # fmt: skip
