"""The baseline of least variance, for a whole response or for each position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Floats, Ints, Table


def running(table: Table, values: Floats) -> Floats:
    """Per action, the sum of a per-action value from its tree's root up to and including it."""
    total = np.cumsum(values)
    before, ends = (_up_to(total, at) for at in (table.start, table.start + table.length))
    above = table.down(ends - before) - (ends - before)
    total -= np.repeat(before - above, table.length)
    return total


def _up_to(total: Floats, at: Ints) -> Floats:
    """The running sum before each place."""
    return np.where(at > 0, total[at - 1], 0.0) if len(total) else np.zeros(len(at))


@register("optimal_baseline", paper="Optimal token baseline (no id recorded)", family="baseline")
@dataclass(frozen=True, slots=True)
class OptimalBaseline:
    """A = r − B with B = Σ W r / Σ W over the group, W = accumulated squared norm of the score.

    `level="token"`: B_t uses W_t = Σ_{u≤t} e_u of every response that reaches position t; `level="sequence"`: one B
    from the whole response's W (the classical optimum of Greensmith et al. 2004). Per-action energies e stand in
    `notes["energy"]`: exact ‖∇log π‖², or the logit proxy 1 − 2π(a) + Σ π². The baseline contains the leaf's own
    reward, so the estimate is biased by O(1/G).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "action:energy"})
    level: Literal["token", "sequence"] = "token"
    """Whether each position has a baseline of its own, or the whole answer one."""

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
        position = running(table, table.loss_mask.astype(np.float64)).astype(np.int64) - 1
        width = int(position.max(initial=0)) + 1
        # What teaches nothing weighs nothing, so it may share a cell.
        cell = np.maximum(position, 0, out=position)
        cell += np.repeat(table.tree * width, table.length)
        live = table.live.astype(np.float64)
        leaves, rewards = table.below(live), table.below(live * reward)
        use = table.loss_mask & np.repeat(leaves > 0, table.length)
        reached *= use
        size = width * len(table.trees)
        mass = np.bincount(cell, reached * np.repeat(leaves, table.length), minlength=size)
        sums = np.bincount(cell, reached * np.repeat(rewards, table.length), minlength=size)
        middle = np.divide(-sums, mass, out=np.zeros(size), where=mass > 0)
        return Advantage(leaf=reward, action=np.where(use, middle[cell], 0.0))
