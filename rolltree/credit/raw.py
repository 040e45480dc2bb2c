"""The outcome itself, without a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("raw", paper="REINFORCE (Williams 1992)", family="baseline")
@dataclass(frozen=True, slots=True)
class Raw:
    """A_i = r_i (REINFORCE, Williams 1992): unbiased, and the noisiest of all.

    For imitation, where an answer's outcome is how much of it is to be learned, and to see what a baseline saves. Not
    for rollouts with positive rewards only: everything sampled is pushed up.

    `right` is filtered imitation instead: what is right counts 1, and the rest neither teaches nor counts in a mean.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    right: bool = False
    """Whether right answers alone teach, all alike."""
    correct: float = 0.5
    """A larger outcome is right."""

    def __call__(self, table: Table) -> Advantage:
        """The outcome of every live leaf, or 1 for each right one."""
        reward = outcomes(table)
        if not self.right:
            return Advantage(leaf=reward)
        right = reward > self.correct
        return Advantage(leaf=right.astype(np.float64), counted=right)
