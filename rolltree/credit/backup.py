"""Backup: the value of every node from the outcomes of the leaves below it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rolltree.credit.advantage import CreditError
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
