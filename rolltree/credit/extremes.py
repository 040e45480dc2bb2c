"""The best against the worst of a group: what a preference objective reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("extremes", paper="Self-Improving Pretraining, arXiv:2601.21343", family="pairwise")
@dataclass(frozen=True, slots=True)
class Extremes:
    """A = +1 on the best leaves of a group, −1 on the worst, 0 between; 0 for all where none is better (the pairs of
    online DPO in Self-Improving Pretraining, arXiv:2601.21343).

    Equal leaves share the place: with one best and one worst it is the paper's single pair. Leaves in between do not
    teach. Meant for the objective `pairwise`, which compares every +1 with every −1 of a group and also takes
    candidates that the policy did not write; under a policy gradient it is a two-sided selection without a scale.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The place of every live leaf."""
        reward = outcomes(table)
        group = partition.leaf_groups(table, self.by)
        low = partition.spread(partition.lowest(reward, group), group)
        high = partition.spread(-partition.lowest(-reward, group), group)
        place = (reward == high).astype(np.float64) - (reward == low)
        told = (group >= 0) & (high > low)
        return Advantage(leaf=np.where(told, place, 0.0), counted=told & (place != 0))
