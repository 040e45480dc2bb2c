"""Paired comparisons: the same seeds, items and prompts on both sides, so that what they share cancels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolltree.errors import RolltreeError

# The error of this package.


class StatsError(RolltreeError, ValueError):
    """Statistics were asked of numbers that cannot give them; says which and what would."""


# Student's t distribution, by SciPy, with bad arguments refused in a sentence.


def t_cdf(t: float, df: float) -> float:
    """P(T ≤ t) with `df` degrees of freedom."""
    from scipy.special import stdtr

    if df <= 0:
        raise StatsError(f"Student's t needs at least one degree of freedom, got {df}")
    return float(stdtr(df, t))


def t_quantile(p: float, df: float) -> float:
    """The t with P(T ≤ t) = p."""
    from scipy.special import stdtrit

    if not 0 < p < 1:
        raise StatsError(f"a quantile needs a probability strictly between 0 and 1, got {p}")
    return float(stdtrit(df, p))


# Several comparisons at once: Holm's step-down procedure (1979), which keeps the chance of any error at alpha, and
# Benjamini and Hochberg's (1995), which keeps the expected share of errors among what is found at q.


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values: comparing each with alpha rejects what Holm's procedure rejects."""
    adjusted = [1.0] * len(p)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, p[i] * (len(p) - rank)))
        adjusted[i] = highest
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted p-values: comparing each with q rejects what Benjamini and Hochberg's procedure rejects."""
    adjusted, least = [1.0] * len(p), 1.0
    order = sorted(range(len(p)), key=lambda i: p[i])
    for rank in range(len(p), 0, -1):
        i = order[rank - 1]
        least = min(least, p[i] * len(p) / rank)
        adjusted[i] = least
    return adjusted


def holm_alphas(p: Sequence[float], alpha: float = 0.05) -> list[float]:
    """The alpha at which each comparison is judged, so that its own 1 − alpha interval says what Holm says.

    The k-th smallest p-value is judged at alpha/(m − k + 1); from the first that is not rejected on, alpha stays put.
    """
    out = [alpha] * len(p)
    stopped: float | None = None
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        own = alpha / (len(p) - rank)
        out[i] = own if stopped is None else stopped
        if stopped is None and p[i] > own:
            stopped = own
    return out


# Confidence intervals of a mean, each saying how it was made.
#
# Few seeds (say, below fifteen) want the t interval: it is exact for normal differences and honest for most others. The
# percentile bootstrap is for many units (items, episodes), where it needs no shape at all; with five units it is too
# narrow and must not be used. When units come in clusters (many samples of one item), whole clusters are resampled.

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
