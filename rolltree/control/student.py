"""Student's t distribution from its definition, so that intervals and allocators need nothing but numpy.

The distribution function is a regularised incomplete beta function, evaluated with Lentz's continued fraction
(Abramowitz & Stegun 26.5.8 and 26.7.1); quantiles are found by bisection, which cannot diverge.
"""

from __future__ import annotations

import math

from rolltree.control.order import ControlError

_STEPS = 300
_TINY = 1e-300


def t_cdf(t: float, df: float) -> float:
    """P(T ≤ t) with `df` degrees of freedom."""
    if df <= 0:
        raise ControlError(f"Student's t needs at least one degree of freedom, got {df}")
    if math.isinf(t):
        return float(t > 0)
    tail = 0.5 * beta_inc(df / 2, 0.5, df / (df + t * t))
    return 1 - tail if t > 0 else tail


def t_quantile(p: float, df: float) -> float:
    """The t with P(T ≤ t) = p."""
    if not 0 < p < 1:
        raise ControlError(f"a quantile needs a probability strictly between 0 and 1, got {p}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        low, high = high, 2 * high
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def beta_inc(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta function."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / _away(1 + term * d), _away(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return value


def _away(x: float) -> float:
    return x if abs(x) > _TINY else _TINY
