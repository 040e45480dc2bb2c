"""SAGE: a skill library inside each rollout of a chain of tasks (arXiv 2512.17102)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import node_scores, outcomes, where
from rolltree.credit.registry import load_credit, register
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.table import Table

# Credit for writing a skill that a later task used with success.


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


@dataclass(frozen=True, slots=True)
class SageSkills:
    """Chains of tasks; a routine that one saved and a later one used with success pays both, beside their outcomes.

    The library is the rollout's own, so the second tasks of a group are compared though their prompts differ, as
    published. Advantages are around the mean at the same place of the chain, not divided by a deviation; the update is
    on-policy, without a clip or a KL. Where it differs: the first task stays in the context of the second, and there is
    no supervised start. The embedded policy has never seen a routine (the expert's play of `chained:calculator` is a
    corpus), and without that start the paper ends at 25.6 instead of 60.7 scenarios, so the evidence is an exact chain.
    """

    card: ClassVar[Card] = Card(
        "sage_skills", "Skill library in chained tasks", "2512.17102", 2025,
        "AppWorld scenarios 60.7 against 51.8 for GRPO without a library, with 26 % fewer steps and 59 % fewer tokens",
        ("generate", "credit"), "grpo",
        Evidence("second tasks solved", "the same chains paid by their outcomes alone", "higher", 0.02, seeds=5,
                 check="rolltree_papers.sage_skills.study:sage_skills"),
        task="chained:calculator", needs=(Need.turns(2), Need.part("uses")), counter=Counter("reward/part/uses"),
    )  # fmt: skip
    group: int = 8
    """Chains of each pair of tasks."""
    bonus: float = 1.0
    """What using a saved routine with success earns; having saved it earns as much."""

    def build(self) -> Parts:
        """Independent chains, the chain's credit, likelihood ratio one."""
        check_group("sage_skills", self.group)
        return Parts(
            "sage_skills", Independent(self.group), load_credit("skill_chain", bonus=self.bonus),
            load_objective("reinforce"), averaging="token",
        )  # fmt: skip
