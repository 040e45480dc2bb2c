"""Paired comparisons: the same seeds, items and prompts on both sides, so that what they share cancels."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from rolltree.lab.stats.error import StatsError
from rolltree.lab.stats.interval import Floats, Interval, bootstrap_interval, finite, t_interval
from rolltree.lab.stats.student import t_cdf

_EXACT = 14
"""Up to this many pairs all 2ⁿ sign patterns are counted; above, they are drawn."""


def differences(a: ArrayLike, b: ArrayLike) -> Floats:
    """a − b, pair by pair; both sides must hold the same seeds in the same order."""
    x, y = finite(a), finite(b)
    if len(x) != len(y):
        raise StatsError(f"paired values need the same seeds on both sides, got {len(x)} and {len(y)}")
    return x - y


def paired_interval(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, *, method: str = "t", seed: int = 0
) -> Interval:  # fmt: skip
    """Interval of the mean of a − b. Method "t" for few seeds, "bootstrap" for many items."""
    d = differences(a, b)
    if method == "t":
        made = t_interval(d, level)
    elif method == "bootstrap":
        made = bootstrap_interval(d, level, seed=seed)
    else:
        raise StatsError(f'unknown interval method {method!r}: use "t" (few seeds) or "bootstrap" (many items)')
    return Interval(made.estimate, made.low, made.high, level, f"paired {method}", made.n)


def t_test(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided p-value of the paired t test that the mean of a − b is 0; 1 when one pair leaves nothing to judge."""
    d = differences(a, b)
    if len(d) < 2:
        return 1.0
    spread = float(d.std(ddof=1))
    if spread == 0:
        return float(d[0] == 0)
    return 2 * t_cdf(-abs(float(d.mean())) / spread * len(d) ** 0.5, len(d) - 1)


def sign_flip_test(a: ArrayLike, b: ArrayLike, *, draws: int = 20_000, seed: int = 0) -> float:
    """Two-sided p-value that the differences are symmetric about 0 (Fisher's randomisation test).

    It assumes nothing about their shape. With n pairs it can never be below 2/2ⁿ: five seeds reach 0.0625 at best.
    """
    d = differences(a, b)
    if len(d) <= _EXACT:
        signs = np.asarray(list(product((1.0, -1.0), repeat=len(d))))
        extreme = np.abs(signs @ d) >= abs(d.sum()) - 1e-12 * np.abs(d).sum()
        return float(extreme.mean())
    rng = np.random.default_rng(seed)
    hits = 0
    for start in range(0, draws, 2000):
        signs = rng.choice((1.0, -1.0), (min(2000, draws - start), len(d)))
        hits += int((np.abs(signs @ d) >= abs(d.sum()) - 1e-12 * np.abs(d).sum()).sum())
    return (hits + 1) / (draws + 1)
