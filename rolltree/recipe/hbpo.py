"""HBPO: hierarchical budget policy optimisation (arXiv 2507.15844)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.hbpo import Budgets
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Hbpo:
    """Arms that announce 1/8, 1/4, 1/2 and 5/8 of the limit, rewarded for keeping to it, compared within and across.

    Evaluation announces nothing. `arm=2` is the released code, which adds the arm's term twice.
    """

    card: ClassVar[Card] = Card(
        "hbpo", "Hierarchical budgets", "2507.15844", 2025,
        "60.6 % fewer tokens at 3.14 points more accuracy on four sets (DeepScaleR-1.5B)",
        ("generate", "control", "credit"), "grpo",
        Evidence("eval/length", "grpo", "lower", 10.0, "regime:tails", seeds=6,
                 settings=("hbpo:limit=64", "hbpo:template={arm}:")),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    group: int = 16
    limit: int = 48
    """Length limit in tokens that the budgets and the reward are fractions of (4,096 in the paper)."""
    template: str = "I will answer the question within {budget} tokens. "
    """What announces the budget, before the answer; `{arm}` is its number, from 0."""
    arm: float = 1.0
    """Weight of the comparison within an arm; 2 = as in the released code."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Budget arms and budget credit."""
        check_group("hbpo", self.group, 8)
        budgets = tuple(max(1, round(self.limit * share)) for share in (1 / 8, 1 / 4, 1 / 2, 5 / 8))
        return Parts(
            "hbpo", Independent(self.group), load_credit("budget", limit=self.limit, arm=self.arm),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Budgets(budgets, self.template),
        )  # fmt: skip
