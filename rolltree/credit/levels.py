"""Two levels: a plan (or design) by one actor, executions of it by another, each credited in its own group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.backup import backup
from rolltree.credit.centre import centred
from rolltree.credit.outcome import outcomes, where
from rolltree.credit.registry import register
from rolltree.credit.scale import Ddof, scaled
from rolltree.tree.table import Bools, Floats, Ints, Table


def plans(table: Table, name: str) -> Ints:
    """Per leaf, the row of the nearest trained node of level 1 or more at or above it; every live leaf needs one."""
    is_plan = table.trainable & np.fromiter((n.level >= 1 for n in table.nodes), np.bool_, len(table.nodes))
    nearest = np.where(is_plan, np.arange(len(table.nodes)), -1)
    for level in table.levels[1:]:
        nearest[level] = np.where(nearest[level] < 0, nearest[table.parent[level]], nearest[level])
    per_leaf = nearest[table.leaf]
    if (table.live & (per_leaf < 0)).any():
        row = int(table.leaf[table.live & (per_leaf < 0)][0])
        raise CreditError(f"{name} needs a plan above {where(table, row)}: a trained node of level 1")
    return np.where(table.live, per_leaf, -1)


def normalised(values: Floats, group: Ints, std: bool, ddof: int, eps: float) -> Floats:
    """Group mean taken off, divided by the standard deviation if asked for."""
    return scaled(centred(values, group, "mean"), values, group, "std" if std else "none", ddof=ddof, eps=eps)


def two_levels(table: Table, plan: Ints, macro: Floats, micro: Floats) -> Advantage:
    """Macro values on the actions of plan nodes, micro values of the leaf on all others.

    A plan of several turns ends at its last node, which has the value; the turns before it get the same, or the mean
    over the plans that share them.
    """
    ends = np.zeros(len(table.nodes))
    ends[np.unique(plan[plan >= 0])] = 1.0
    total, count = macro * ends, ends.copy()
    for level in table.levels[:0:-1]:
        np.add.at(total, table.parent[level], total[level])
        np.add.at(count, table.parent[level], count[level])
    spread = np.divide(total, count, out=np.zeros(len(total)), where=count > 0)
    planned = table.per_action(np.fromiter((n.level >= 1 for n in table.nodes), np.bool_, len(table.nodes)))
    node = np.repeat(spread, table.length)
    return Advantage(leaf=micro, action=np.where(planned, node, 0.0), factor=np.where(planned, 0.0, 1.0))


def plan_values(table: Table, plan: Ints, *, std: bool, ddof: int, eps: float) -> Floats:
    """Per node: on plans the mean outcome of their executions against the other plans of the tree; 0 elsewhere."""
    rows = np.unique(plan[plan >= 0])
    value, group = np.zeros(len(table.nodes)), np.full(len(table.nodes), -1, np.int64)
    value[rows] = backup(table, outcomes(table), "leaf_mean")[rows]
    group[rows] = table.tree[rows]
    return normalised(value, group, std, ddof, eps)


Phase = Literal["macro", "micro", "both", "alternate"]
"""Which level learns: the plans, their executions, both at once, or one after the other."""


def turn_of(table: Table, every: int) -> Phase:
    """Whose turn it is at the newest version that wrote the step: `every` versions each, plans first."""
    version = table.flat("version", -1.0)
    newest = int(version[table.loss_mask].max(initial=-1.0))
    if newest < 0 and table.loss_mask.any():
        row = int(np.repeat(np.arange(len(table.nodes)), table.length)[table.loss_mask][0])
        raise CreditError(
            f"{where(table, row)} and all others do not say under which version they were written, so levels cannot "
            'alternate; let the engine report versions, or choose phase "macro" or "micro" yourself'
        )
    return "macro" if newest // every % 2 == 0 else "micro"


@register("himac", paper="HiMAC, arXiv:2603.00977", family="hierarchy")
@dataclass(frozen=True, slots=True)
class HiMAC:
    """Macro: A = (R − mean)/(std + eps) over blueprints, on blueprint actions; micro: the same over the executions of
    the best blueprint, on execution actions (HiMAC, arXiv:2603.00977; normalisation and eps reconstructed).

    A blueprint is a trained node of level 1, or the last of several on its path; R of a blueprint is the mean outcome
    of its executions (give it one greedy execution to follow the paper). `phase` says which level learns; "alternate"
    lets each learn for `every` versions of the weights in turn, the blueprints first, and reads the version from the
    actions. With `best` only executions of the highest-valued blueprint teach how to execute (first wins ties). Fold
    with multiplicity "once": a blueprint is one sample however many executions it has.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "level:1"})
    phase: Phase = "both"
    every: int = 1
    """Versions a level learns before the other's turn ("alternate")."""
    best: bool = True
    std: bool = True
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """Macro advantages on plans, micro advantages below them."""
        if self.phase not in get_args(Phase) or self.every < 1:
            raise CreditError(
                f"himac: phase is {self.phase!r} and every is {self.every}; the phases are "
                f"{', '.join(get_args(Phase))}, and a level learns for at least 1 version"
            )
        plan = plans(table, "himac")
        phase = turn_of(table, self.every) if self.phase == "alternate" else self.phase
        zero = np.zeros(len(table.nodes))
        macro = plan_values(table, plan, std=self.std, ddof=self.ddof, eps=self.eps) if phase != "micro" else zero
        micro = np.zeros(len(table.leaf))
        if phase != "macro":
            group = np.where(self._chosen(table, plan), plan, -1) if self.best else plan
            micro = normalised(outcomes(table), group, self.std, self.ddof, self.eps)
        return two_levels(table, plan, macro, micro)

    def _chosen(self, table: Table, plan: Ints) -> Bools:
        rows = np.unique(plan[plan >= 0])
        # Rounded, so that the order in which executions were summed cannot decide between equal plans.
        value = np.round(backup(table, outcomes(table), "leaf_mean")[rows], 12)
        order = np.lexsort((partition.steady(table, rows), -value, table.tree[rows]))
        _, first = np.unique(table.tree[rows][order], return_index=True)
        return np.isin(plan, rows[order[first]])


@register("designer_executor", paper="MetaAgent-X, arXiv:2605.14212", family="hierarchy")
@dataclass(frozen=True, slots=True)
class DesignerExecutor:
    """A design earns the mean outcome of its executions, against the other designs; an execution its own outcome,
    against all executions of the question or those of its design (MetaAgent-X, arXiv:2605.14212).

    `group="auto"` takes "question" up to two executions per design, else "design". With "question" the executor's
    advantage contains the design's quality. Failed executions are left out; let the task score them 0 if they are the
    design's fault. Fold with multiplicity "once", or a design is trained once per execution.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "level:1"})
    group: Literal["auto", "question", "design"] = "auto"
    std: bool = True
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """Designer advantages on designs, executor advantages below them."""
        plan = plans(table, "designer_executor")
        macro = plan_values(table, plan, std=self.std, ddof=self.ddof, eps=self.eps)
        if self.group not in ("auto", "question", "design"):
            raise CreditError(f'designer_executor: group is {self.group!r}; choose "auto", "question" or "design"')
        most = int(partition.count(plan).max(initial=0))
        by_design = self.group == "design" or (self.group == "auto" and most > 2)
        group = plan if by_design else partition.leaf_groups(table, "tree")
        return two_levels(table, plan, macro, normalised(outcomes(table), group, self.std, self.ddof, self.eps))
