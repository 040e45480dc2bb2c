"""STAgent: RL on prompts chosen by mean reward times variance (arXiv 2512.24957)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.stagent import Stagent
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class StagentRecipe:
    """GRPO on the prompts of a pool with the highest mean × variance, measured under the current policy.

    This is the choice of prompts for its last stage. The funnel of queries, the difficulty gauge and fine-tuning on
    what is certain come before any rollout of RL and are not part of it; nor are the rubric's judge with its veto, for
    which any graded reward stands. Its evidence counts the rollouts that measure: in simulation the share of groups
    with variance is higher, and there are fewer of them for each rollout drawn.
    """

    card: ClassVar[Card] = Card(
        "stagent", "Selection by mean and variance", "2512.24957", 2025,
        "prompts chosen by mean reward × reward variance train an agentic planner where most queries teach nothing",
        ("control", "filter"), "grpo",
        Evidence("groups with variance per 1,000 rollouts, measuring ones counted", "uniform choice from the same pool",
                 "higher", 5.0, seeds=5, check="studies.prompts.checks:stagent"),
        counter=Counter("budget/arm/measured"),
    )  # fmt: skip
    group: int = 8
    pool: int = 256
    """Candidate prompts."""
    rollouts: int = 8
    """Rollouts that measure a candidate."""
    every: int = 5
    """Steps between two measurements."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts."""
        check_group("stagent", self.group)
        return Parts(
            "stagent", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Stagent(self.pool, rollouts=self.rollouts, every=self.every),
        )  # fmt: skip
