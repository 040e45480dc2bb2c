"""Two levels: a plan (or design) by one actor, executions of it by another, each credited in its own group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.backup import backup
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import outcomes, where
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Floats, Ints, Table


def _nearest(table: Table) -> Ints:
    """Per leaf, the row of the nearest trained node of level 1 or more at or above it; -1 where there is none."""
    is_plan = table.trainable & np.fromiter((n.level >= 1 for n in table.nodes), np.bool_, len(table.nodes))
    nearest = np.where(is_plan, np.arange(len(table.nodes)), -1)
    for level in table.levels[1:]:
        nearest[level] = np.where(nearest[level] < 0, nearest[table.parent[level]], nearest[level])
    return nearest[table.leaf]


def plans(table: Table, name: str) -> Ints:
    """Per live leaf, the plan it executes; every live leaf needs one."""
    per_leaf = _nearest(table)
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


def plan_values(
    table: Table, plan: Ints, *, std: bool, ddof: int, eps: float, failures: bool = False
) -> Floats:  # fmt: skip
    """Per node: on plans the mean outcome of their executions against the other plans of the tree; 0 elsewhere.

    With `failures` an execution that failed counts as one of outcome 0, also where no other of its plan stands.
    """
    rows = np.unique(plan[plan >= 0])
    value, group = np.zeros(len(table.nodes)), np.full(len(table.nodes), -1, np.int64)
    value[rows] = backup(table, outcomes(table), "leaf_mean")[rows]
    if failures:
        of = _nearest(table)
        failed = np.fromiter((table.nodes[i].status == "failed" for i in table.leaf), np.bool_, len(table.leaf))
        failed &= (of >= 0) & (of != table.leaf)
        done = np.bincount(plan[plan >= 0], minlength=len(value))
        broken = np.bincount(of[failed], minlength=len(value))
        rows = np.flatnonzero(done + broken)
        value[rows] *= done[rows] / (done + broken)[rows]
    group[rows] = table.tree[rows]
    return normalised(value, group, std, ddof, eps)


Phase = Literal["macro", "micro", "both"]
"""Which level learns from a tree: its plans, the executions of one plan, or both at once."""
LEARNS = "learns_micro"
"""Score of a tree's prompt: 0 = its plans learn, 1 = its executions do; where it is missing both do."""


def learning(table: Table) -> tuple[Bools, Bools]:
    """Per tree, whether its plans learn, and whether its executions do: as its generator has grown it."""
    said = table.score(LEARNS)[table.root]
    return ~(said > 0.5), ~(said <= 0.5)


@register("himac", paper="HiMAC, arXiv:2603.00977", family="hierarchy")
@dataclass(frozen=True, slots=True)
class HiMAC:
    """Macro: A = (R − mean)/(std + eps) over blueprints, on blueprint actions; micro: the same over the executions of
    a blueprint, on execution actions (HiMAC, arXiv:2603.00977; normalisation and eps reconstructed).

    A blueprint is a trained node of level 1, or the last of several on its path; R of a blueprint is the mean outcome
    of its executions. A tree says which level learns from it (score `learns_micro` of its prompt); in one that says
    nothing both do. With `best` only executions of the highest-valued blueprint teach how to execute (first wins ties);
    a generator that samples below one fixed blueprint needs no such choice. Fold with multiplicity "once": a blueprint
    is one sample however many executions it has.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "level:1"})
    best: bool = False
    """Whether only executions of the best blueprint train the lower level."""
    std: bool = True
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """Macro advantages on plans, micro advantages below them."""
        plan = plans(table, "himac")
        of_plans, of_executions = learning(table)
        macro = plan_values(table, plan, std=self.std, ddof=self.ddof, eps=self.eps) * of_plans[table.tree]
        group = np.where(self._chosen(table, plan), plan, -1) if self.best else plan
        micro = normalised(outcomes(table), group, self.std, self.ddof, self.eps) * of_executions[table.leaf_tree]
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
    advantage contains the design's quality. Executions that failed count as 0 for their design, whose program broke
    (`failures=False` leaves them out, where ours did), also where all of its executions did; they have no advantage of
    their own, and a design without one that stands is compared with, not trained on. Fold with multiplicity "once", or
    a design is trained once per execution.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "level:1"})
    group: Literal["auto", "question", "design"] = "auto"
    failures: bool = True
    """Whether a failed execution counts as 0 for its design."""
    std: bool = True
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """Designer advantages on designs, executor advantages below them."""
        plan = plans(table, "designer_executor")
        macro = plan_values(table, plan, std=self.std, ddof=self.ddof, eps=self.eps, failures=self.failures)
        if self.group not in ("auto", "question", "design"):
            raise CreditError(f'designer_executor: group is {self.group!r}; choose "auto", "question" or "design"')
        most = int(partition.count(plan).max(initial=0))
        by_design = self.group == "design" or (self.group == "auto" and most > 2)
        group = plan if by_design else partition.leaf_groups(table, "tree")
        return two_levels(table, plan, macro, normalised(outcomes(table), group, self.std, self.ddof, self.eps))
