"""Backup: the value of every node from the outcomes of the leaves below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Floats, Table

Backup = Literal["leaf_mean", "child_mean", "any"]
"""Mean over leaves below, mean over children (recursive), or the best outcome below."""


def backup(table: Table, leaf_values: Floats, rule: Backup, *, discount: float = 1.0) -> Floats:
    """V per node over the live leaves below it; NaN where there is none.

    "leaf_mean" weighs a child by how many leaves it was given: where forks are uneven (a good child forked four
    times, a bad one once) it is biased, "child_mean" is not as long as children are independent samples. `discount`
    multiplies once per turn between a node and its leaf (turns end at environment nodes).
    """
    live = table.live
    n = len(table.nodes)
    value = np.full(n, np.nan)
    value[table.leaf[live]] = leaf_values[live]
    if rule not in ("leaf_mean", "child_mean", "any"):
        raise CreditError(f'backup {rule!r} is unknown; choose "leaf_mean", "child_mean" or "any"')
    mass = table.below(live.astype(np.float64))
    turn = turns(table)
    for level in table.levels[:0:-1]:
        rows = level[mass[level] > 0]
        above = table.parent[rows]
        grown = value[rows] * discount ** (turn[rows] - turn[above])
        if rule == "any":
            best = np.full(n, -np.inf)
            np.maximum.at(best, above, grown)
            value[above] = best[above]
            continue
        weight = mass[rows] if rule == "leaf_mean" else np.ones(len(rows))
        # Around one child's value, so equal children give exactly it.
        anchor = np.zeros(n)
        anchor[above] = grown
        sums = np.bincount(above, weight * (grown - anchor[above]), n)
        total = np.bincount(above, weight, n)
        value[above] = anchor[above] + sums[above] / total[above]
    return value


def turns(table: Table) -> Floats:
    """Number of environment nodes strictly above each node: the turn its actions belong to."""
    env = np.fromiter((node.role == "env" for node in table.nodes), np.float64, len(table.nodes))
    return table.down(env) - env


def siblings(table: Table) -> Floats:
    """Per node, how many children of its parent have a live leaf (itself included); 0 at roots."""
    alive = table.below(table.live.astype(np.float64)) > 0
    inner = np.flatnonzero((table.parent >= 0) & alive)
    per_parent = np.bincount(table.parent[inner], minlength=len(table.nodes))
    return np.where(table.parent >= 0, np.append(per_parent, 0)[table.parent], 0).astype(np.float64)


def forks(table: Table) -> Bools:
    """Nodes at which live leaves part: at least two children have one."""
    at = np.zeros(len(table.nodes), np.bool_)
    parted = siblings(table) > 1
    at[table.parent[parted]] = True
    return at


# What an edge of the tree changed: the value after it minus the value before it.


def values(table: Table, rule: Backup) -> Floats:
    """V per node around its tree's mean outcome; 0 where no leaf below is live."""
    middle = centred(outcomes(table), partition.leaf_groups(table, "tree"), "mean")
    return np.nan_to_num(backup(table, middle, rule))


def above(table: Table, value: Floats) -> Floats:
    """Value of each node's parent; at roots their own."""
    return value[np.where(table.parent < 0, np.arange(len(value)), table.parent)]


@register("node_delta", paper="ROSE, arXiv:2601.05053", family="tree")
@dataclass(frozen=True, slots=True)
class NodeDelta:
    """A(n) = V(n) − V(parent of n) on the node's own actions (ROSE, arXiv:2601.05053; no std).

    V is the mean outcome below (`backup="leaf_mean"`, as published) or the recursive mean over children
    ("child_mean", unbiased under uneven forks). A run after the last fork gets the leaf's own outcome minus its
    siblings' mean; a run that is an only child gets 0, so it needs trees that fork often. The published length
    calibration among correct leaves is `length_calibrated`. With forks at the root only: the group mean.

    `by="position"` is the released estimator's bookkeeping: one value per (tree, position of the node's end), which
    merges different prefixes of one length.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    backup: Backup = "leaf_mean"
    by: Literal["prefix", "position"] = "prefix"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every node."""
        value = values(table, self.backup)
        if self.by == "position":
            value = merged(table, value)
        return Advantage(node=value - above(table, value))


def merged(table: Table, value: Floats) -> Floats:
    """V of all forks of a tree that end at one position, averaged over the leaves through any of them."""
    end = table.down(table.length.astype(np.float64)).astype(np.int64)
    mass = table.below(table.live.astype(np.float64))
    inner = ~table.is_leaf
    _, place = np.unique(
        np.stack([table.tree, end, np.where(inner, -1, np.arange(len(end)))]), axis=1, return_inverse=True
    )
    place = place.ravel()
    total, weight = np.bincount(place, value * mass), np.bincount(place, mass)
    return np.divide(total, weight, out=np.zeros(len(weight)), where=weight > 0)[place]


@register("global_plus_local", paper="TreePS-RAG, arXiv:2601.06922", family="tree")
@dataclass(frozen=True, slots=True)
class GlobalPlusLocal:
    """A(n) = (V(n) − V(root)) + (V(n) − V(parent)), optionally / √(live leaves below n).

    The TreeRL form; that TreePS-RAG (arXiv:2601.06922) uses it is (reconstructed), no code was released. The global
    part keeps a signal on only children. Use "child_mean" when similar siblings were pruned unevenly.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    backup: Backup = "leaf_mean"
    by_root_of_leaves: bool = False
    """Whether to divide by the square root of the number of live leaves below."""

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every node."""
        value = values(table, self.backup)
        out = (value - value[table.root][table.tree]) + (value - above(table, value))
        if self.by_root_of_leaves:
            out = out / np.sqrt(np.maximum(table.below(table.live.astype(np.float64)), 1.0))
        return Advantage(node=out)
