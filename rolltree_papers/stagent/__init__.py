"""STAgent: RL on prompts chosen by mean reward times variance (arXiv 2512.24957)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool, highest, measured
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import storable

# Prompts that are solved often, and not always: mean reward times variance under the current policy (STAgent).


@storable
@dataclass(slots=True)
class StagentState:
    """Candidates, the score that each was last seen to have, and when they were measured."""

    pool: Pool
    scores: dict[str, float] = field(default_factory=dict[str, float])
    measured_in: int = 0


@dataclass(frozen=True, slots=True)
class Stagent:
    """The prompts of a pool with the highest mean × variance of rewards, measured on rollouts that are not trained on.

    Of rewards of 0 and 1 the score is highest at a mean of 2/3: easier prompts than those of the highest variance.
    Some candidates are measured every few steps (how often, and how many, is reconstructed); in between a trained
    prompt is known by its own rollouts.
    """

    name: ClassVar[str] = "stagent"
    paper: ClassVar[str] = "2512.24957"
    needs: ClassVar[frozenset[str]] = frozenset()
    pool: int = 256
    """Candidate prompts."""
    fresh: int = 0
    """How many of them are replaced by new ones each step."""
    candidates: int = 0
    """Prompts that are measured at a time; 0 = four times those of a step."""
    rollouts: int = 0
    """Rollouts of each, 8 in the paper; 0 = the strategy's width."""
    every: int = 5
    """Steps between two measurements."""

    def __post_init__(self) -> None:
        check_pool(self.name, self.pool, self.fresh)
        if self.every < 1:
            raise ControlError(f"stagent: every={self.every} never measures; give 1 or a number of steps")

    def start(self) -> StagentState:
        """Nothing is known."""
        return StagentState(Pool(self.pool, self.fresh))

    def plan(self, step: Step, state: StagentState) -> Plan:
        """A measuring round when it is due, then the round that trains."""
        items = state.pool.items(step.supply)
        if not state.measured_in or step.number - state.measured_in >= self.every:
            count = self.candidates or 4 * step.prompts
            some = [items[i] for i in step.rng.permutation(len(items))[:count]]
            known = yield from measured(step, some, self.rollouts, "measured for mean × variance")
            state.scores |= {d.order.prompt.uid: mean_times_variance(d.rewards) for d in known}
            state.measured_in = step.number
        scores = np.array([state.scores.get(item.id, 0.0) for item in items])
        chosen = highest(scores, step.prompts, step.rng)
        prompts = step.prompts_of([items[i] for i in chosen])
        delivered = yield [Order(p, why=f"mean × variance {scores[i]:.3f}", last=True)
                           for p, i in zip(prompts, chosen, strict=True)]  # fmt: skip
        state.scores |= {d.order.prompt.uid: mean_times_variance(d.rewards) for d in delivered if d.n}


def mean_times_variance(rewards: Sequence[float]) -> float:
    """Of a prompt's rewards; p · p(1 − p) where they are 0 and 1."""
    return float(np.mean(rewards) * np.var(rewards))


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
                 "higher", 5.0, seeds=5, check="rolltree_papers.stagent.study:stagent"),
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
