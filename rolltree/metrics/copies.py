"""Rollouts that say the same: exact copies within a tree, and how many different answers a group gives."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Bools


def copies(r: Rollouts) -> Numbers:
    """Copies among the wrong rollouts of groups of two or more, and different answers per judged rollout."""
    out: Numbers = {}
    missed = r.wrong & (r.count(r.judged) >= 2)[r.leaf_tree]
    if missed.any() and len(r.transcript):
        out["rollout/duplicates"] = float(repeats(r)[missed].mean())
    if r.judged.any():
        # Leaves without an answer count as one more kind of answer.
        kinds = np.unique(np.stack([r.leaf_tree[r.judged], r.answer[r.judged]]), axis=1)
        judged = r.count(r.judged)
        given = np.bincount(kinds[0], minlength=r.trees)[judged > 0]
        out["rollout/unique"] = float((given / judged[judged > 0]).mean())
    return out


def repeats(r: Rollouts) -> Bools:
    """Leaves whose whole path an earlier leaf of the tree has written already."""
    key = np.stack([r.leaf_tree.astype(np.uint64), r.transcript])
    first = np.zeros(len(r.leaf), np.bool_)
    first[np.unique(key, axis=1, return_index=True)[1]] = True
    return ~first
