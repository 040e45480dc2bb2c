"""Credit for writing a skill that a later task used with success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import node_scores, outcomes, where
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("skill_chain", paper="SAGE, arXiv:2512.17102", family="hierarchy")
@dataclass(frozen=True, slots=True)
class SkillChain:
    """R_k = r_k + [k succeeded and k+1 succeeded using its skill] + [k succeeded using the skill of k−1], minus the
    mean over the chains at the same position (SAGE, arXiv:2512.17102; no std).

    A leaf is a chain of tasks; the node that ends a task has scores `task_reward` and `used_skill` (1 if it called
    a skill the previous task saved). A task's advantage goes to its own actions. Published for chains of two; longer
    ones repeat the rule for each neighbour (reconstructed). A success has `task_reward` of at least `success`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "end:task_reward"})
    bonus: float = 1.0
    """What a task earns for using a skill with success; the task that saved it earns as much."""
    success: float = 1.0
    """Least reward of a task that counts as a success."""

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every task's nodes."""
        outcomes(table)
        ends = np.flatnonzero(np.isfinite(table.score("task_reward")) & (table.below(table.live.astype(float)) > 0))
        is_end = np.zeros(len(table.nodes))
        is_end[ends] = 1.0
        position = np.rint(table.down(is_end)).astype(np.int64)
        if (position[table.leaf[table.live]] == 0).any():
            row = int(table.leaf[table.live][position[table.leaf[table.live]] == 0][0])
            raise CreditError(f"no node at or above {where(table, row)} has a 'task_reward'; score where tasks end")
        task = np.full(len(table.nodes), -1, np.int64)
        task[ends] = ends
        for level in table.levels[::-1]:
            rows = level[(task[level] >= 0) & (table.parent[level] >= 0)]
            above = table.parent[rows]
            free = is_end[above] == 0
            task[above[free]] = task[rows[free]]
        before = np.full(len(table.nodes), -1, np.int64)
        for level in table.levels[1:]:
            above = table.parent[level]
            before[level] = np.where(is_end[above] > 0, above, before[above])
        reward = np.zeros(len(table.nodes))
        reward[ends] = node_scores(table, "task_reward", ends)
        right = reward >= self.success
        used = np.nan_to_num(table.score("used_skill")) > 0.5
        linked = np.zeros(len(table.nodes), np.bool_)
        linked[ends] = used[ends] & right[ends] & (before[ends] >= 0)
        paid = reward + self.bonus * linked
        makers = before[ends[linked[ends]]]
        paid[np.unique(makers[right[makers]])] += self.bonus
        keys = table.tree * (int(position.max(initial=0)) + 1) + position
        group = np.where(is_end > 0, keys, -1)
        value = centred(paid, group, "mean")
        return Advantage(node=np.where(task >= 0, value[task], 0.0))
