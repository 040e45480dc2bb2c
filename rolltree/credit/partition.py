"""Partition: which values are compared with which, and sums within a group.

A group is a non-negative integer per value; -1 belongs to no group. Sums are taken around each group's smallest value,
so a group of equal values centres to exactly zero and a constant added to all of them changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Literal

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.tree.table import Bools, Floats, Ints, Table

By = Literal["tree", "item", "batch"]
"""Leaves of one tree, of all trees of one item, or of the whole step."""


def ids(keys: Iterable[Hashable]) -> Ints:
    """Number distinct keys in order of first appearance; None is -1 (no group)."""
    known: dict[Hashable, int] = {}
    return np.fromiter((-1 if k is None else known.setdefault(k, len(known)) for k in keys), np.int64)


def leaf_groups(table: Table, by: By, use: Bools | None = None) -> Ints:
    """Group per leaf; leaves outside `use` (default: the live ones) get -1."""
    if by == "tree":
        group = table.leaf_tree.copy()
    elif by == "item":
        names = [(t.task, t.item) if t.item else t.id for t in table.trees]
        group = ids(names)[table.leaf_tree] if names else table.leaf_tree.copy()
    elif by == "batch":
        group = np.zeros(len(table.leaf), np.int64)
    else:
        raise CreditError(f'grouping by {by!r} is unknown; choose "tree", "item" or "batch"')
    group[~(table.live if use is None else use)] = -1
    return group


def steady(table: Table, rows: Ints) -> Ints:
    """Rank of these nodes by (tree id, node id): what breaks ties, so that no order of rows can matter."""
    keys = [(table.trees[table.tree[i]].id, table.nodes[i].id) for i in rows]
    rank = np.empty(len(rows), np.int64)
    rank[sorted(range(len(rows)), key=keys.__getitem__)] = np.arange(len(rows))
    return rank


def count(group: Ints) -> Ints:
    """Size of each group, by group number."""
    return np.bincount(group[group >= 0])


def size(group: Ints) -> Ints:
    """Size of its group, per value; 0 outside groups."""
    return np.append(count(group), 0)[group]


def total(values: Floats, group: Ints, weights: Floats | None = None) -> Floats:
    """Sum per group number, optionally weighted."""
    inside = group >= 0
    weighted = values if weights is None else values * weights
    sums = np.bincount(group[inside], weighted[inside], minlength=int(group.max(initial=-1)) + 1)
    return sums.astype(np.float64)


def lowest(values: Floats, group: Ints) -> Floats:
    """Smallest value per group number."""
    out = np.full(int(group.max(initial=-1)) + 1, np.inf)
    np.minimum.at(out, group[group >= 0], values[group >= 0])
    return out


def mean(values: Floats, group: Ints, weights: Floats | None = None) -> Floats:
    """Weighted mean per group number; NaN where all weights are 0."""
    low = lowest(values, group)
    low = np.where(np.isfinite(low), low, 0.0)
    shifted = np.where(group >= 0, values - low[group] if len(low) else values, 0.0)
    ones = np.ones(len(values)) if weights is None else weights
    mass = total(ones, group)
    sums = total(shifted, group, ones)
    return low + np.divide(sums, mass, out=np.full(len(mass), np.nan), where=mass > 0)


def median(values: Floats, group: Ints, kind: Literal["lower", "mean"]) -> Floats:
    """Median per group number: on an even count the lower middle value (as torch has it) or the mean of the two."""
    order = np.lexsort((values, group))
    order = order[group[order] >= 0]
    sizes = count(group)
    first = np.cumsum(sizes) - sizes
    ranked = np.append(values[order], np.nan)
    low = ranked[np.where(sizes > 0, first + (sizes - 1) // 2, len(order))]
    if kind == "lower":
        return low
    return (low + ranked[np.where(sizes > 0, first + sizes // 2, len(order))]) / 2


def spread(per_group: Floats, group: Ints, fill: float = 0.0) -> Floats:
    """One number per group laid back over the values; `fill` outside groups."""
    return np.append(per_group, fill)[group]
