"""Budget arms: a reward that peaks at the announced length, compared within and across arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import leaf_scores, outcomes
from rolltree.credit.registry import register
from rolltree.credit.reward_shaping import path_length
from rolltree.tree.table import Floats, Table


@register("budget", paper="HBPO, hierarchical budget policy optimisation (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class AnnouncedLength:
    """A = (R − mean)/std over the prompt + (mean R of the arm − f2(b)) (HBPO).

    For a correct leaf of length l ≤ limit in the arm with budget b: R = min(f1, f2), f1 = g cos(π l / 2 limit) −
    |l − b| / limit, f2 = g cos(π b / 2 limit); without a budget g cos(π l / 2 limit). Otherwise 0. A leaf's arm is
    its score `budget` (0 or absent: no arm). The arm term is not centred: it is at most 0, a penalty on arms far from
    their ceiling. Released code adds it twice (`arm=2`); arm = 0 leaves the group term alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    limit: int = 4096
    """Length beyond which a right answer earns nothing."""
    gain: float = 4.0
    """Height of the cosine that falls with the length."""
    arm: float = 1.0
    """Weight of the term that punishes budgets far from the best one; 0 leaves the group term alone."""
    correct: float = 0.5
    ddof: Ddof = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise CreditError(f"budget: limit must be at least 1 action, got {self.limit}")

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        budget = leaf_scores(table, "budget", missing=0.0)
        has_arm = budget > 0
        right = outcomes(table) > self.correct
        reward = np.where(right, self.rewards(path_length(table), budget), 0.0)
        group = partition.leaf_groups(table, "tree")
        across = scaled(centred(reward, group, "mean"), reward, group, "std", ddof=self.ddof, eps=self.eps)
        keys = zip(table.leaf_tree.tolist(), budget.tolist(), table.live & has_arm, strict=True)
        arm = partition.ids((t, b) if use else None for t, b, use in keys)
        mean = partition.spread(partition.mean(reward, arm), arm) if (arm >= 0).any() else np.zeros(len(reward))
        within = np.where(arm >= 0, mean - self._ceiling(budget), 0.0)
        return Advantage(leaf=across + self.arm * within)

    def rewards(self, length: Floats, budget: Floats) -> Floats:
        """The reward of correct leaves of these lengths and budgets."""
        bare = self._ceiling(length)
        capped = np.minimum(bare - np.abs(length - budget) / self.limit, self._ceiling(budget))
        return np.where(length <= self.limit, np.where(budget > 0, capped, bare), 0.0)

    def _ceiling(self, length: Floats) -> Floats:
        return self.gain * np.cos(np.pi * length / (2 * self.limit))
