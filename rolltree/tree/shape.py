"""The shape of many trees from their parents alone: rows, depths and subtrees, without a Python loop over nodes.

Rows are nodes depth first, tree after tree, so parents precede children, a subtree is a slice of rows, and the leaves
below a node are a slice of the leaves. Sums below are sums of slices, sums along paths go level by level; no recursion.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DEEP = 20
"""Rows that a level must have on average for a pass over levels to be faster than one over rows."""


class Shape:
    """Rows of nodes, from the tree each belongs to and the row of its parent: of trees in memory or in files."""

    def __init__(self, tree: Ints, parent: Ints) -> None:
        self.tree = tree
        """Index of each node's tree."""
        self.parent = parent
        """Row of each node's parent, -1 at roots."""

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.parent)

    @cached_property
    def depth(self) -> Ints:
        """Nodes above each node."""
        return depths(self.parent)

    @cached_property
    def end(self) -> Ints:
        """Row after the last descendant: the subtree of row i is i:end[i]."""
        return ends(self.parent, self.depth)

    @cached_property
    def root(self) -> Ints:
        """Row of each tree's root."""
        return np.flatnonzero(self.parent < 0)

    @cached_property
    def is_leaf(self) -> Bools:
        """Nodes without children."""
        return self.child_count == 0

    @cached_property
    def leaf(self) -> Ints:
        """Rows of the leaves, in row order."""
        return np.flatnonzero(self.is_leaf)

    @cached_property
    def leaf_tree(self) -> Ints:
        """Tree index per leaf."""
        return self.tree[self.leaf]

    @cached_property
    def _leaves_before(self) -> Ints:
        return offsets(self.is_leaf)

    @cached_property
    def leaf_lo(self) -> Ints:
        """First leaf (index into `leaf`) at or below each node."""
        return self._leaves_before[:-1]

    @cached_property
    def leaf_hi(self) -> Ints:
        """One past the last leaf at or below each node."""
        return self._leaves_before[self.end]

    @cached_property
    def leaf_count(self) -> Ints:
        """Leaves at or below each node."""
        return self.leaf_hi - self.leaf_lo

    @cached_property
    def child_count(self) -> Ints:
        """Children of each node."""
        return np.bincount(self.parent[self.parent >= 0], minlength=len(self)).astype(np.int64)

    @cached_property
    def levels(self) -> tuple[Ints, ...]:
        """Rows at each depth, from the roots down."""
        order = np.argsort(self.depth, kind="stable")
        return tuple(np.split(order, np.cumsum(np.bincount(self.depth))[:-1])) if len(order) else ()

    def below(self, leaf_values: NDArray[Any]) -> NDArray[Any]:
        """Per node, the sum of a value over the leaves at or below it."""
        if not len(self):
            return np.zeros(0)
        # Sums of slices, not differences of running sums: one tree's NaN or 1e9 must not reach the others.
        bounds = np.stack([self.leaf_lo, self.leaf_hi], axis=1).ravel()
        return np.add.reduceat(np.append(leaf_values, np.zeros(1, leaf_values.dtype)), bounds)[::2]

    def down(self, node_values: NDArray[Any]) -> NDArray[Any]:
        """Per node, the sum of a value over the path from its root to itself."""
        out = np.array(node_values)
        for rows in self.levels[1:]:
            out[rows] += out[self.parent[rows]]
        return out

    def path(self, row: int) -> list[int]:
        """Rows from the root to this one."""
        out: list[int] = []
        while row >= 0:
            out.append(row)
            row = int(self.parent[row])
        return out[::-1]

    def children(self, row: int) -> list[int]:
        """Rows of a node's children in order."""
        out: list[int] = []
        child, end = row + 1, int(self.end[row])
        while child < end:
            out.append(child)
            child = int(self.end[child])
        return out


def parent_rows(tree: Ints, id: NDArray[Any], parent: NDArray[Any]) -> Ints:
    """Row of each node's parent given each row's tree index, node id and parent id (-1 at roots, which stay -1)."""
    key = (tree << 32) | id.astype(np.int64)
    order = np.argsort(key, kind="stable")
    below = parent >= 0
    out = np.full(len(id), -1, np.int64)
    wanted = (tree[below] << 32) | parent[below].astype(np.int64)
    at = np.searchsorted(key, wanted, sorter=order)
    out[below] = order[np.minimum(at, len(order) - 1)]
    if not np.array_equal(key[out[below]], wanted) or np.any(out[below] >= np.flatnonzero(below)):
        raise ValueError("a node names a parent that does not precede it")
    return out


def depths(parent: Ints) -> Ints:
    """Number of nodes above each row, by doubling the distance looked at."""
    depth = (parent >= 0).astype(np.int64)
    above = parent.copy()
    while True:
        rows = np.flatnonzero(above >= 0)
        if not len(rows):
            return depth
        depth[rows] += depth[above[rows]]
        above[rows] = above[above[rows]]


def ends(parent: Ints, depth: Ints) -> Ints:
    """Row after each row's last descendant, for rows in depth-first order: a level at a time, the deepest first."""
    if DEEP * int(depth.max(initial=0)) > len(parent):
        return _ends_of_deep(depth)
    size = np.ones(len(parent), np.int64)
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, depth.max(initial=0) + 2))
    for i in range(len(bounds) - 1, 0, -1):
        rows = order[bounds[i - 1] : bounds[i]]
        np.add.at(size, parent[rows], size[rows])
    return np.arange(len(parent)) + size


def _ends_of_deep(depth: Ints) -> Ints:
    """The same row by row, for trees with so many levels that a level has hardly a row."""
    out = np.full(len(depth), len(depth), np.int64)
    open_rows: list[int] = []
    levels = depth.tolist()
    for row, level in enumerate(levels):
        while open_rows and levels[open_rows[-1]] >= level:
            out[open_rows.pop()] = row
        open_rows.append(row)
    return out


def offsets(counts: ArrayLike) -> Ints:
    """Where each of some runs of entries starts when they are laid end to end, and the total."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(counts, np.int64))])
