"""Right answers that are longer than needed earn less for what made them longer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Bools, Floats, Table

RIGHT = 1.0 - 1e-9
"""An outcome from here on is a right answer."""


@register("length_calibrated", paper="ROSE, arXiv:2601.05053, length calibration", family="shaping")
@dataclass(frozen=True, slots=True)
class LengthCalibrated:
    """A ← A − |A|·(1 − ((|s| − b)/(|c| − b))^α) for a right leaf c behind b, where it leaves the shortest right one s.

    Lengths are trained actions and b counts those before the fork (ROSE, arXiv:2601.05053). Signs survive. A run
    shared by several leaves takes the mean of their factors, which is what training each leaf's own copy comes to
    where leaves weigh alike (averaging "fixed", ROSE's). The base must give one advantage per run, as node credits do.
    """

    base: Credit | str = "node_delta"
    alpha: float = 1.0
    """Exponent of the ratio of lengths: larger ones take more from long right answers."""

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise CreditError(f"length_calibrated: alpha {self.alpha} must be above 0; leave the calibration out for 0")

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, less on what made right answers longer."""
        before = resolve(self.base)(table)
        if before.node is None or before.leaf is not None or before.action is not None or before.factor is not None:
            raise CreditError(f"length_calibrated: the base {self.base!r} is not one advantage per run; try node_delta")
        excess, shortest = surplus(table, self.alpha)
        live = table.live.astype(np.float64)
        mean = table.below(excess * live) / np.maximum(table.below(live), 1.0)
        return replace(before, node=before.node - np.abs(before.node) * np.where(shortest, 0.0, mean))


def surplus(table: Table, alpha: float) -> tuple[Floats, Bools]:
    """Per leaf 1 − ((|s| − b)/(|c| − b))^α, 0 unless it is right; and which nodes are on their tree's shortest path."""
    right = table.live & (outcomes(table) >= RIGHT)
    taught = np.add.reduceat(np.append(table.loss_mask, False).astype(np.int64), table.start)
    upto = table.down(np.where(table.length > 0, taught, 0))
    length = np.where(right, table.loss_tokens, np.iinfo(np.int64).max)
    shortest = np.zeros(len(table.nodes), np.bool_)
    goal = np.zeros(len(table.trees))
    for tree in np.unique(table.leaf_tree[right]):
        mine = np.flatnonzero(table.leaf_tree == tree)
        row = int(table.leaf[mine[length[mine].argmin()]])
        goal[tree] = upto[row]
        while row >= 0:
            shortest[row] = True
            row = int(table.parent[row])
    fork = np.where(shortest, upto, 0.0)
    for rows in table.levels[1:]:
        fork[rows] = np.where(shortest[rows], upto[rows], fork[table.parent[rows]])
    b, own = fork[table.leaf], upto[table.leaf]
    longer = right & (own > b)
    part = np.divide(goal[table.leaf_tree] - b, own - b, out=np.ones(len(b)), where=longer)
    return np.where(longer, 1.0 - np.clip(part, 0.0, 1.0) ** alpha, 0.0), shortest
