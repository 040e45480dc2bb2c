"""Allocators: how many rollouts each of several prompts or bins gets. Pure functions of numbers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import ControlError

# How many prompts a step needs for its gradient to be more than noise.


def norm_test(ratio: float | None, prompts: int, eta: float, most: int) -> int:
    """The next step's prompts: as many as now where Var/B ≤ η²‖g‖², else ⌈Var/(η²‖g‖²)⌉; never fewer, at most `most`.

    `ratio` is Var/‖g‖², Var the variance of a prompt's gradient around the batch's g (AdAdaGrad, arXiv 2402.11215).
    None = nothing was measured, and nothing changes.
    """
    if eta <= 0 or most < 1:
        raise ControlError(f"a norm test with eta={eta} and most={most} prompts says nothing; give both above 0")
    if ratio is None or math.isnan(ratio) or ratio <= eta**2 * prompts:
        return min(prompts, most)
    wanted = ratio / eta**2
    return most if wanted >= most else max(prompts, math.ceil(wanted))


def true_ratio(ratio: float, prompts: int) -> float:
    """Var/‖E g‖² from what a batch of so many prompts shows: its own g is longer than the mean by its noise, Var/B
    (arXiv 1812.06162, appendix A.1). Infinite where noise is all there is."""
    return ratio / (1 - ratio / prompts) if ratio < prompts else math.inf


Floats = NDArray[np.float64]


def proportional(weights: Sequence[float], total: int, low: int = 0, high: int | None = None) -> list[int]:
    """Counts in proportion to weights, between bounds, that sum to `total` where the bounds allow it.

    What a bound takes from one is shared out among the others; the last units go by largest remainder. Weights that
    are all zero count as equal.
    """
    w = np.asarray(weights, np.float64)
    if len(w) == 0:
        return []
    if (w < 0).any() or not np.isfinite(w).all():
        raise ControlError(f"weights to allocate by must be finite and at least 0, got {w.min()}")
    top = np.full(len(w), np.inf if high is None else float(high))
    bottom = np.full(len(w), float(low))
    goal = float(min(max(total, low * len(w)), top.sum()))
    w = _relative(w)
    exact = _filled(w, goal, bottom, top)
    counts = np.floor(exact + 1e-9)
    order = np.lexsort((np.arange(len(w)), -(exact - counts)))
    spare = round(goal - counts.sum())
    for i in order[counts[order] < top[order]][:spare]:
        counts[i] += 1
    return [int(c) for c in counts]


def square_root(variances: Sequence[float], sizes: Sequence[float], total: int, low: int = 1,
                high: int | None = None) -> list[float]:  # fmt: skip
    """Rollouts per prompt of each bin, n_b ∝ √variance_b, with Σ size_b · n_b = total (GDRO's square-root law).

    It minimises Σ size_b · variance_b / n_b, the variance of the mean of independent group means.
    """
    v, s = np.sqrt(np.asarray(variances, np.float64)), np.asarray(sizes, np.float64)
    w = _relative(v)
    top = np.full(len(w), np.inf if high is None else float(high))
    bottom = np.full(len(w), float(low))
    goal = float(np.clip(total, (s * bottom).sum(), (s * top).sum()))
    return [float(x) for x in _filled(w, goal, bottom, top, s)]


def greedy(
    gain: Callable[[int, int], float], given: Sequence[int], total: int, high: int | None = None, chunk: int = 1
) -> list[int]:
    """Hand out `total` more units, `chunk` at a time, each to whoever gains most: gain(i, n) from one more beside n.

    Optimal where gains fall with n. Returns what each gets now. Ties go to the first.
    """
    more = [0] * len(given)
    queue = [(-gain(i, n), i) for i, n in enumerate(given) if high is None or n < high]
    heapq.heapify(queue)
    left = total
    while left > 0 and queue:
        _, i = heapq.heappop(queue)
        room = chunk if high is None else min(chunk, high - given[i] - more[i])
        take = min(room, left)
        more[i] += take
        left -= take
        now = given[i] + more[i]
        if high is None or now < high:
            heapq.heappush(queue, (-gain(i, now), i))
    return more


def exact_sum(worth: Sequence[Sequence[float]], sizes: Sequence[int], widths: Sequence[int], total: int) -> list[int]:
    """One width per bin that maximises Σ worth[bin][width] subject to Σ size · width = total, by dynamic programming.

    Where no choice meets the total, the nearest one below it is taken (and if none is below, the nearest above): a
    budget is not overrun for want of a round number. Returns an index into `widths` for each bin.
    """
    if not worth:
        return []
    value = np.zeros(1)
    came: list[NDArray[np.int64]] = []
    for row, size in zip(worth, sizes, strict=True):
        longer = np.full(len(value) + size * max(widths), -np.inf)
        chosen = np.full(len(longer), -1, np.int64)
        for k, width in enumerate(widths):
            at = slice(size * width, size * width + len(value))
            better = value + row[k] > longer[at]
            longer[at] = np.where(better, value + row[k], longer[at])
            chosen[at] = np.where(better, k, chosen[at])
        value = longer
        came.append(chosen)
    possible = np.flatnonzero(np.isfinite(value))
    below = possible[possible <= total]
    spent = int(below[-1] if len(below) else possible[0])
    out: list[int] = []
    for chosen, size in zip(reversed(came), reversed(sizes), strict=True):
        k = int(chosen[spent])
        out.append(k)
        spent -= size * widths[k]
    return out[::-1]


def _relative(w: Floats) -> Floats:
    """Weights as parts of the largest; all equal where there is none, and nothing below a part in 10¹²."""
    if w.max(initial=0.0) <= 0:
        return np.ones(len(w))
    part = w / w.max()
    return np.where(part < 1e-12, 0.0, part)


def _filled(w: Floats, goal: float, low: Floats, high: Floats, size: Floats | None = None) -> Floats:
    """c · w clipped to the bounds, with c such that Σ size · value = goal; by bisection."""
    s = np.ones(len(w)) if size is None else size

    def at(c: float) -> Floats:
        return np.clip(c * w, low, high)

    # Whoever has weight 0 stays at its lower bound, unless the others are full.
    if float((s * np.where(w > 0, high, low)).sum()) < goal:
        full = np.where(w > 0, high, low)
        rest = np.where(w > 0, 0.0, 1.0)
        return full + _filled(rest, goal - float((s * full).sum()), 0 * low, np.where(w > 0, 0.0, high - low), size)
    a, b = 0.0, 1.0
    while float((s * at(b)).sum()) < goal and b < 1e18:
        b *= 2
    for _ in range(100):
        c = (a + b) / 2
        a, b = (c, b) if float((s * at(c)).sum()) < goal else (a, c)
    return at(b)
