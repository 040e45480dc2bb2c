"""Give an action shared by several leaves the mean of their advantages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from rolltree.credit.advantage import Advantage, Credit
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Table


@register("shared_mean", paper="ARPO, arXiv:2507.19849 (hard assignment)", family="tree")
@dataclass(frozen=True, slots=True)
class SharedMean:
    """A(n) = mean of the base credit's leaf term over the counted leaves below n (ARPO's hard assignment).

    Equal in gradient to leaving the leaves apart (soft) while ratios are 1 and weights equal; unlike soft it nets
    positive against negative before the clip. `Multiplicity` of the fold says how often the shared action counts.
    """

    base: Credit | str = field(default="grpo")

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage with its leaf term moved to the nodes."""
        advantage = resolve(self.base)(table)
        if advantage.leaf is None:
            return advantage
        use = (table.live if advantage.counted is None else table.live & advantage.counted).astype(np.float64)
        mass = table.below(use)
        sums = table.below(np.where(use > 0, advantage.leaf, 0.0))
        mean = np.divide(sums, mass, out=np.zeros(len(mass)), where=mass > 0)
        return replace(advantage, leaf=None, node=mean if advantage.node is None else mean + advantage.node)
