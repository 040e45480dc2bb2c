"""Prompts that are solved often, and not always: mean reward times variance under the current policy (STAgent)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.measured import measured
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool, highest
from rolltree.tree.values import storable


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
