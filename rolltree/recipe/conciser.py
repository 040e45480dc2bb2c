"""ConciseR: length rewarded only where a prompt is solved (arXiv 2505.21178)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.brevity import Brevity
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class ConciseR:
    """Stage 1 learns to be right on mixed groups; stage 2 pays for brevity where ALL rollouts of a prompt are right.

    Groups that were solved and had no gradient are those that learn brevity, so hard prompts never pay for it. The
    stages follow each other (that the first takes 60 % of a run is reconstructed); `stage=2` alone suits a policy that
    already solves some prompts, as in the evidence. The form λ (1 − length / limit) is reconstructed. Centred, not
    divided by the deviation: a difference of one token would become a unit advantage. Stage 1's entropy bonus is left
    out.
    """

    card: ClassVar[Card] = Card(
        "conciser", "ConciseR", "2505.21178", 2025,
        "shorter answers at equal or better accuracy (56.1 against 55.3 after stage 1, Qwen2.5-Math-7B)",
        ("filter", "control"), "dr_grpo",
        Evidence("eval/length", "dr_grpo", "lower", 5.0, "regime:tails", seeds=6,
                 settings=("conciser:limit=64", "conciser:stage=2", "conciser:clip_high=0.2")),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    stage: Literal[1, 2] | str = "1, 2 at 60%"
    """1 learns to be right, 2 pays for brevity where all rollouts of a prompt are right."""
    weight: float = 0.2
    """λ: reward of saying nothing at all where all are right."""
    limit: int = 48
    """Tokens at which the reward of brevity is 0: what long answers take, at most the run's limit."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    rounds: int = 4
    """Most rounds of sampling in a step of stage 1."""

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, the length term in stage 2, mean-centred credit, asymmetric clip."""
        check_group("conciser", self.group)
        if self.stage not in (1, 2):
            raise RecipeError(f"conciser: there is no stage={self.stage}; give 1 or 2")
        first = self.stage == 1
        return Parts(
            "conciser", Independent(self.group), load_credit("dr_grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="fixed",
            filters=(Mixed(),) if first else (), rounds=self.rounds if first else 1,
            shapers=() if first else (Brevity(self.weight, self.limit),),
        )  # fmt: skip
