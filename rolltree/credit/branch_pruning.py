"""Branches left out of the gradient, after credit was given with all of them (BranchGRPO, arXiv:2509.06040)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.depth import dropped, places
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Bools, Table


@register("pruned_branches", paper="BranchGRPO, arXiv:2509.06040", family="tree")
@dataclass(frozen=True, slots=True)
class PrunedBranches:
    """The base's advantages, less some edges: what is sampled, scored and compared stays whole.

    Depth: the `count` actions from place `first` on (counted from the prompt's end) are left out; `first` may vary over
    the run, which is the paper's sliding. Width, behind the last fork only: "best" keeps the better half of the leaves
    below one fork, "extremes" the best and the worst quarter of all leaves of a tree.
    """

    base: Credit | str = field(default="depthwise")
    """The credit whose advantages are pruned."""
    first: int = 0
    """The first place that depth pruning leaves out."""
    count: int = 0
    """How many places it leaves out; 0 = none."""
    width: Literal["none", "best", "extremes"] = "none"
    """Which leaves are kept behind the last fork: all, the best of each fork, or a tree's best and worst."""
    ratio: float = 0.5
    """Share of the leaves that is kept."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage with edges dropped."""
        if self.width not in ("none", "best", "extremes"):
            raise CreditError(f'pruned_branches: width is {self.width!r}; choose "none", "best" or "extremes"')
        keep = np.ones(table.actions, np.bool_)
        if self.count:
            prompt = np.array([len(tree.root) for tree in table.trees], np.int64)
            place = places(table) - np.repeat(prompt[table.tree], table.length)
            keep &= ~((place >= self.first) & (place < self.first + self.count))
        if self.width != "none":
            keep &= self._wide(table)
        return dropped(table, keep, resolve(self.base)(table))

    def _wide(self, table: Table) -> Bools:
        """Per action: not of a leaf that goes; what stands above the last fork always stays."""
        reward, keep = outcomes(table), np.ones(len(table.nodes), np.bool_)
        pools: dict[int, list[int]] = {}
        for i in np.flatnonzero(table.live).tolist():
            row = int(table.leaf[i])
            pools.setdefault(int(table.parent[row] if self.width == "best" else table.tree[row]), []).append(i)
        for pool in pools.values():
            order = sorted(pool, key=lambda i: (-reward[i], i))
            count = max(1, round(self.ratio * len(order)))
            best = count if self.width == "best" else (count + 1) // 2
            stay = {*order[:best], *order[len(order) - (count - best) :]} if count < len(order) else set(order)
            for i in pool:
                keep[table.leaf[i]] = i in stay
        return np.repeat(keep, table.length)


@register("best_leaf", paper="Dynamic-TreeRPO, arXiv:2509.23352 (reconstructed)", family="tree")
@dataclass(frozen=True, slots=True)
class BestLeaf:
    """The base's advantages, and `weight` more on the path of each tree's best leaf if its outcome is at least `floor`.

    Dynamic-TreeRPO's LayerTuning pulls each layer's prediction towards the one on the best path; for Gaussian steps
    that is the gradient of the best path's log-prob, up to the step's variance (reconstructed: the layers' weights are
    one here). Imitating the best of one's own group can collapse onto it.
    """

    base: Credit | str = field(default="depthwise")
    """The credit that is added to."""
    weight: float = 0.1
    """Advantage that the best leaf's path gets on top."""
    floor: float = 0.5
    """Least outcome of a leaf that is imitated."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's, and more for the best."""
        advantage = resolve(self.base)(table)
        reward = np.where(table.live, outcomes(table), -np.inf)
        more = np.zeros(len(table.nodes))
        for tree in range(len(table.trees)):
            mine = np.flatnonzero(table.leaf_tree == tree)
            if not len(mine) or reward[mine].max() < self.floor:
                continue
            for leaf in mine[reward[mine] == reward[mine].max()].tolist():  # all of several that are equally good
                row = int(table.leaf[leaf])
                while row >= 0:
                    more[row] = self.weight
                    row = int(table.parent[row])
        bonus = np.repeat(more, table.length)
        action = bonus if advantage.action is None else advantage.action + bonus
        return Advantage(advantage.leaf, advantage.node, action, advantage.factor, advantage.counted)
