"""Student's t distribution, by SciPy, with bad arguments refused in a sentence."""

from __future__ import annotations

from rolltree.lab.stats.error import StatsError


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
