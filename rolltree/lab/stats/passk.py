"""pass@k from n samples of each item, c of them right: the chance that k samples hold a right one.

The estimator 1 − C(n−c, k)/C(n, k) is unbiased (Chen et al. 2021, arXiv 2107.03374, eq. 1); 1 − (1 − c/n)^k is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rolltree.lab.stats.error import StatsError
from rolltree.lab.stats.interval import Floats, Interval, clustered_interval


def pass_at_k(right: ArrayLike, samples: ArrayLike, k: int) -> Floats:
    """Unbiased pass@k per item. Every item needs at least k samples."""
    c, n = _counts(right, samples, k)
    out = np.ones(len(c))
    for j in range(k):  # C(n−c, k)/C(n, k) = Π (n−c−j)/(n−j): exact where factorials would overflow
        out *= np.clip(n - c - j, 0, None) / (n - j)
    return 1 - out


def pass_all_k(right: ArrayLike, samples: ArrayLike, k: int) -> Floats:
    """Unbiased chance that all of k samples are right, per item: C(c, k)/C(n, k)."""
    c, n = _counts(right, samples, k)
    out = np.ones(len(c))
    for j in range(k):
        out *= np.clip(c - j, 0, None) / (n - j)
    return out


def pass_at_k_interval(right: ArrayLike, samples: ArrayLike, k: int, level: float = 0.95, seed: int = 0) -> Interval:
    """Mean pass@k over items with a bootstrap over items: the interval is about new items of the same kind."""
    per_item = pass_at_k(right, samples, k)
    return clustered_interval(per_item, range(len(per_item)), level, seed=seed, method="bootstrap over items")


def _counts(right: ArrayLike, samples: ArrayLike, k: int) -> tuple[Floats, Floats]:
    c = np.atleast_1d(np.asarray(right, np.float64))
    n = np.broadcast_to(np.asarray(samples, np.float64), c.shape)
    if k < 1:
        raise StatsError(f"pass@k needs k of at least 1, got {k}")
    if (n < k).any():
        raise StatsError(f"pass@{k} needs at least {k} samples of every item, but one has {int(n.min())}: sample more")
    if (c < 0).any() or (c > n).any():
        raise StatsError("the number of right samples must lie between 0 and the number of samples of the item")
    return c, n
