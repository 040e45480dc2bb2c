"""Rewards changed before any credit: flaws; and the length that rewards of length count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.credit.advantage import Advantage, Credit
from rolltree.credit.outcome import leaf_scores, outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Floats, Table


def path_length(table: Table) -> Floats:
    """Number of trained actions on each leaf's path: what length rewards count, masked or not."""
    return table.down(np.where(table.trainable, table.length, 0).astype(np.float64))[table.leaf]


@register("flawed_positive", paper="FAPO, flawed-aware policy optimisation (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class FlawedPositive:
    """r ← r − penalty on correct leaves with score `flawed` > 0.5, then the base (FAPO).

    On a ±1 scale the penalty is 1, on 0/1 rewards 0.5: flawed is halfway between wrong and clean, so it is still
    reinforced while successes are rare and pushed down once they are not. Leaves without the score are not flawed
    (the judge runs on correct ones only). penalty = 0 is the base.
    """

    base: Credit | str = "grpo"
    penalty: float = 0.5
    """What a right answer with a flawed solution loses; 0 is the base credit."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage of the corrected rewards."""
        reward = outcomes(table)
        flawed = (leaf_scores(table, "flawed", missing=0.0) > 0.5) & (reward > self.correct)
        return resolve(self.base)(table.with_reward(reward - self.penalty * flawed))
