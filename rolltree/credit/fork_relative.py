"""Compare a step with its sibling steps, and the whole trajectory with the other trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.backup import Backup, backup
from rolltree.credit.grpo import GRPO
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("fork_relative", paper="PORTool, arXiv:2510.26020", family="tree")
@dataclass(frozen=True, slots=True)
class ForkRelative:
    """A = w_path · (R_i − mean R)/std over leaves + w_fork · (R(s) − mean over siblings)/std (PORTool).

    R(s) = Σ γ^(turns from s to the leaf) outcome, aggregated over the leaves below, + the node's `format` score where
    it has one (reconstructed; the aggregate was a mean in v1 and correctness-dominated in v2: `backup="any"`). An
    only child has no fork term. w_fork = 0 is GRPO exactly. γ < 1 favours short successes.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    w_path: float = 1.0
    """Weight of the advantage over the whole group."""
    w_fork: float = 1.0
    """Weight of the advantage over the siblings; 0 is GRPO."""
    gamma: float = 0.95
    backup: Backup = "leaf_mean"
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """A term per leaf and a term per node."""
        path = GRPO(ddof=self.ddof, eps=self.eps)(table)
        value = backup(table, outcomes(table), self.backup, discount=self.gamma)
        step = value + np.nan_to_num(table.score("format"), nan=0.0)
        group = np.where(np.isfinite(step) & table.trainable, table.parent, -1)
        step = np.where(group >= 0, step, 0.0)
        fork = scaled(centred(step, group, "mean"), step, group, "std", ddof=self.ddof, eps=self.eps)
        leaf = None if path.leaf is None else path.leaf * self.w_path
        return Advantage(leaf=leaf, node=fork * self.w_fork if self.w_fork else None)


@register("sibling", paper="PORTool, arXiv:2510.26020 (fork term alone)", family="tree")
@dataclass(frozen=True, slots=True)
class Sibling:
    """A(n) = (V(n) − mean over its siblings)/(std + eps): the fork term of PORTool alone, undiscounted.

    `scale=False` leaves out the std. An only child gets 0. With forks at the root only: the group mean.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    backup: Backup = "child_mean"
    scale: bool = False
    """Whether to divide by the standard deviation of the siblings."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every node."""
        value = backup(table, outcomes(table), self.backup)
        group = np.where(np.isfinite(value) & table.trainable, table.parent, -1)
        value = np.where(group >= 0, value, 0.0)
        middle = centred(value, group, "mean")
        how = "std" if self.scale else "none"
        return Advantage(node=scaled(middle, value, group, how, ddof=self.ddof, eps=self.eps))
