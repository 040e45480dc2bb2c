"""The shape of many trees from their parents alone: rows, depths and subtrees, without a Python loop over nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


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
    size = np.ones(len(parent), np.int64)
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, depth.max(initial=0) + 2))
    for i in range(len(bounds) - 1, 0, -1):
        rows = order[bounds[i - 1] : bounds[i]]
        np.add.at(size, parent[rows], size[rows])
    return np.arange(len(parent)) + size


def offsets(counts: ArrayLike) -> Ints:
    """Where each of some runs of entries starts when they are laid end to end, and the total."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(counts, np.int64))])
