"""Variances of many comparisons that help one another: the moderated t of limma (Smyth 2004).

Each variance s² with d degrees of freedom is drawn towards a common s₀² that counts as d₀ more: (d₀ s₀² + d s²)/(d₀ +
d). Both are fitted to all variances by moments of their logarithms. With few seeds this keeps a variance that is small
by chance from making a comparison look certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ENOUGH = 6
"""Variances from which on a common one is fitted: from fewer, how much they differ cannot be told."""
_FLOOR = 1e-5
"""Share of the median variance that the smallest counts as, so that a variance of zero has a logarithm."""


@dataclass(frozen=True, slots=True)
class VariancePrior:
    """What the variances of a family have in common."""

    variance: float
    df: float
    """How many degrees of freedom it is worth; inf where the variances differ no more than by chance."""
    most: float
    """Degrees of freedom of all together: no comparison has more."""

    def moderate(self, variance: float, df: float) -> tuple[float, float]:
        """A comparison's variance and its degrees of freedom under the prior."""
        if np.isinf(self.df):
            return self.variance, self.most
        mixed = (self.df * self.variance + df * variance) / (self.df + df)
        return mixed, min(self.df + df, self.most)


def variance_prior(variances: Sequence[float], dfs: Sequence[float]) -> VariancePrior | None:
    """The prior fitted to these variances; None where there are too few, or none of them is above zero."""
    from scipy.special import digamma, polygamma

    s, d = np.asarray(variances, np.float64), np.asarray(dfs, np.float64)
    s, d = s[d > 0], d[d > 0]
    middle = float(np.median(s)) if len(s) else 0.0
    if len(s) < ENOUGH or middle <= 0:
        return None
    e = np.log(np.maximum(s, _FLOOR * middle)) - digamma(d / 2) + np.log(d / 2)
    spread = float(np.var(e, ddof=1) - np.mean(polygamma(1, d / 2)))
    if spread <= 0:
        return VariancePrior(float(np.exp(e.mean())), np.inf, float(d.sum()))
    d0 = 2 * _inverse_trigamma(spread)
    return VariancePrior(float(np.exp(e.mean() + digamma(d0 / 2) - np.log(d0 / 2))), d0, float(d.sum()))


def _inverse_trigamma(x: float) -> float:
    """The y with ψ′(y) = x, by Newton's method on 1/ψ′, which is nearly linear."""
    from scipy.special import polygamma

    y = 0.5 + 1 / x
    for _ in range(50):
        tri = float(polygamma(1, y))
        step = tri * (1 - tri / x) / float(polygamma(2, y))
        y += step
        if abs(step) < 1e-10 * y:
            break
    return y
