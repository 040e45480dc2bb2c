"""Looks at a growing number of seeds that together err as seldom as one test (Lan and DeMets 1983).

α is spent over the looks as O'Brien and Fleming's boundary does: hardly any at first, nearly all at the last. Several
hypotheses are tested by Holm's procedure at every look (Ye et al. 2013): what a rejected one leaves goes to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from rolltree.compare.stats.paired import StatsError

_REACH, _STEP = 8.0, 0.01
"""How far the grid goes below 0 in standard deviations, and its step."""


@cache
def look_levels(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """The one-sided level at each look (a number of seeds), so that all looks together are wrong with chance alpha."""
    from scipy.special import ndtr, ndtri

    if not looks or any(a >= b for a, b in pairwise(looks)) or looks[0] < 2:
        raise StatsError(f"looks at {looks} seeds make no sense; give rising numbers from 2 on, as in (8, 14, 20)")
    if not 0 < alpha < 0.5:
        raise StatsError(f"a one-sided alpha lies between 0 and 0.5 (0.025, say), got {alpha}")
    shares = [n / looks[-1] for n in looks]
    spent = [2 * float(ndtr(ndtri(alpha / 2) / t**0.5)) for t in shares]
    grid, density, before, out = np.zeros(1), np.ones(1), 0.0, list[float]()
    for k, t in enumerate(shares):
        step = (t - before) ** 0.5
        wanted = spent[k] - (spent[k - 1] if k else 0.0)
        # Where Brownian motion that has not crossed yet must stand at t for just this much to cross.
        low, high = 0.0, _REACH
        for _ in range(60):
            middle = (low + high) / 2
            crossed = float((density * ndtr((grid - middle * t**0.5) / step)).sum())
            low, high = (middle, high) if crossed > wanted else (low, middle)
        bound = (low + high) / 2
        out.append(float(ndtr(-bound)))
        fine = np.arange(-_REACH * t**0.5, bound * t**0.5, _STEP) + _STEP / 2
        away = (fine[:, None] - grid[None, :]) / step
        density = (np.exp(-(away**2) / 2) @ density) * _STEP / (step * (2 * np.pi) ** 0.5)
        grid, before = fine, t
    return tuple(out)


def sequential_holm(p: Sequence[float], known: Sequence[bool], look: int, looks: tuple[int, ...],
                    alpha: float = 0.025) -> list[bool]:  # fmt: skip
    """Which hypotheses stand rejected after a look; `known` were rejected at an earlier one, and `p` are one-sided."""
    if len(p) != len(known):
        raise StatsError(f"{len(p)} p-values need as many answers of the looks before, got {len(known)}")
    out = list(known)
    while not all(out):
        level = look_levels(looks, alpha / (len(out) - sum(out)))[look]
        found = [i for i, value in enumerate(p) if not out[i] and value <= level]
        if not found:
            break
        for i in found:
            out[i] = True
    return out
