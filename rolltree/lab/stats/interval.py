"""Confidence intervals of a mean, each saying how it was made.

Few seeds (say, below fifteen) want the t interval: it is exact for normal differences and honest for most others. The
percentile bootstrap is for many units (items, episodes), where it needs no shape at all; with five units it is too
narrow and must not be used. When units come in clusters (many samples of one item), whole clusters are resampled.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolltree.lab.stats.error import StatsError
from rolltree.lab.stats.student import t_quantile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, and how both were obtained."""

    estimate: float
    low: float
    high: float
    level: float
    """Confidence level: the share of repetitions in which such an interval holds the truth."""
    method: str
    n: int
    """Independent units behind it: seeds, items, …"""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def flipped(self) -> Interval:
        """The interval of the negated quantity."""
        return Interval(-self.estimate, -self.high, -self.low, self.level, self.method, self.n)


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean ± t · s/√n with s of ddof 1. One value has no spread to judge by: its interval is the whole line."""
    x = finite(values)
    _check_level(level)
    mean = float(x.mean())
    if len(x) == 1:
        return Interval(mean, -np.inf, np.inf, level, "t", 1)
    half = t_quantile(0.5 + level / 2, len(x) - 1) * float(x.std(ddof=1)) / len(x) ** 0.5
    return Interval(mean, mean - half, mean + half, level, "t", len(x))


def bootstrap_interval(values: ArrayLike, level: float = 0.95, *, draws: int = 4000, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean (Efron 1979): units are resampled with replacement."""
    x = finite(values)
    return clustered_interval(x, range(len(x)), level, draws=draws, seed=seed, method="bootstrap")


def clustered_interval(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    level: float = 0.95,
    *,
    draws: int = 4000,
    seed: int = 0,
    method: str = "clustered bootstrap",
) -> Interval:
    """Percentile bootstrap of the mean of all values that resamples whole clusters (the samples of one item)."""
    x = finite(values)
    _check_level(level)
    if len(x) != len(clusters):
        raise StatsError(f"{len(x)} values need as many cluster labels, got {len(clusters)}")
    index: dict[Hashable, int] = {}
    member = np.asarray([index.setdefault(c, len(index)) for c in clusters])
    sums = np.bincount(member, x, len(index)).astype(np.float64)
    sizes = np.bincount(member, minlength=len(index)).astype(np.float64)
    means = _resampled(sums, sizes, draws, np.random.default_rng(seed))
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(x.mean()), float(low), float(high), level, method, len(index))


def nested_interval(
    groups: Sequence[ArrayLike], level: float = 0.95, *, draws: int = 4000, seed: int = 0
) -> Interval:  # fmt: skip
    """Bootstrap of a mean over seeds of means over items: seeds are resampled, and within each the items it was judged
    on. Both what another run and what other items would change is in the interval; with few seeds it is too narrow.
    """
    x = [finite(g) for g in groups]
    if not x:
        raise StatsError("statistics of no seeds are undefined: give at least one")
    _check_level(level)
    rng = np.random.default_rng(seed)
    # One resample of a seed's items for every draw; a seed drawn twice in one draw has the same items there.
    inner = np.stack([_resampled(g, np.ones(len(g)), draws, rng) for g in x])
    pick = rng.integers(len(x), size=(len(x), draws))
    means = np.take_along_axis(inner, pick, 0).mean(0)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    estimate = float(np.mean([g.mean() for g in x]))
    return Interval(estimate, float(low), float(high), level, "bootstrap of seeds and items", len(x))


def finite(values: ArrayLike) -> Floats:
    """A non-empty flat array of finite numbers, or a sentence saying which is not."""
    x = np.asarray(values, np.float64).ravel()
    if not len(x):
        raise StatsError("statistics of no values are undefined: give at least one")
    if not np.isfinite(x).all():
        where = int(np.flatnonzero(~np.isfinite(x))[0])
        raise StatsError(f"value {where} of {len(x)} is {x[where]}: drop or repair it before asking for statistics")
    return x


def _resampled(sums: Floats, sizes: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Means of `draws` resamples; done in slices so that memory stays small for many clusters."""
    out = np.empty(draws)
    step = max(1, 2_000_000 // len(sums))
    for start in range(0, draws, step):
        pick = rng.integers(len(sums), size=(min(step, draws - start), len(sums)))
        out[start : start + step] = sums[pick].sum(1) / sizes[pick].sum(1)
    return out


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise StatsError(f"a confidence level lies strictly between 0 and 1 (0.95, say), got {level}")
