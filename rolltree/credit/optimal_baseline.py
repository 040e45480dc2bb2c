"""The baseline of least variance, for a whole response or for each position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.centre import centred
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Floats, Table


def running(table: Table, values: Floats) -> Floats:
    """Per action, the sum of a per-action value from its tree's root up to and including it."""
    ends = table.start + table.length
    total = np.concatenate([[0.0], np.cumsum(values)])
    inside = total[1:] - np.repeat(total[table.start], table.length)
    whole = total[ends] - total[table.start]
    return inside + np.repeat(table.down(whole) - whole, table.length)


@register("optimal_baseline", paper="Optimal Token Baseline, arXiv:2602.07078", family="baseline")
@dataclass(frozen=True, slots=True)
class OptimalBaseline:
    """A = r − B with B = Σ W r / Σ W over the group, W = accumulated squared norm of the score.

    `level="token"`: B_t uses W_t = Σ_{u≤t} e_u of every response that reaches position t (optimal token baseline,
    arXiv:2602.07078); `level="sequence"`: one B from the whole response's W (the classical optimum of Greensmith et
    al. 2004). Per-action energies e stand in `notes["energy"]`: exact ‖∇log π‖², or the logit proxy
    1 − 2π(a) + Σ π². The baseline contains the leaf's own reward, so the estimate is biased by O(1/G).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "action:energy"})
    level: Literal["token", "sequence"] = "token"

    def __call__(self, table: Table) -> Advantage:
        """Reward per leaf and minus the baseline per action."""
        reward, energy = outcomes(table), action_values(table, "energy")
        reached = running(table, energy)
        group = partition.leaf_groups(table, "tree")
        if self.level == "sequence":
            per_node: Floats = np.bincount(
                np.repeat(np.arange(len(table.nodes)), table.length), energy, len(table.nodes)
            ).astype(np.float64)
            return Advantage(leaf=centred(reward, group, "mean", "zero", table.down(per_node)[table.leaf]))
        # Around the group's mean: a constant added to all rewards then changes nothing, not even by rounding.
        reward = centred(reward, group, "mean")
        position = np.rint(running(table, table.teaches.astype(np.float64))).astype(np.int64) - 1
        tree = np.repeat(table.tree, table.length)
        cell = np.where(table.teaches, tree * (position.max(initial=0) + 1) + position, -1)
        live = table.live.astype(np.float64)
        leaves, rewards = (np.repeat(table.below(v), table.length) for v in (live, live * reward))
        use = table.teaches & (leaves > 0)
        mass = np.bincount(cell[use], (reached * leaves)[use], minlength=int(cell.max(initial=-1)) + 1)
        sums = np.bincount(cell[use], (reached * rewards)[use], minlength=len(mass))
        middle = np.divide(sums, mass, out=np.zeros(len(mass)), where=mass > 0)
        return Advantage(leaf=reward, action=np.where(use, -middle[cell] if len(mass) else 0.0, 0.0))
