"""Several comparisons judged as one family, each on the hypotheses that its own verdict is about.

A claim of an effect of at least x has two: that there is no effect (*holds* rejects it), and that the effect is x or
more (*worse*, *claim excluded* and *no effect above x* reject it). Each is tested from one side, and Holm's procedure
(1979) goes over the family once for either, at half of α each. So the chance that any *holds* of the family is wrong
is α/2 at most, the same for the others, and α for both together. The ends of an interval stand at the level that
Holm's procedure gave its comparison on that side, so the interval says what the tests say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.compare.stats.moderated import VariancePrior, variance_prior
from rolltree.compare.stats.paired import (
    Interval,
    StatsError,
    benjamini_hochberg,
    finite,
    holm,
    holm_alphas,
    t_cdf,
    t_quantile,
)
from rolltree.compare.stats.verdict import Direction


@dataclass(frozen=True, slots=True)
class Asked:
    """One comparison of a family: paired differences (treatment − baseline) and what is claimed of them."""

    differences: tuple[float, ...]
    direction: Direction = "higher"
    least: float = 0.0
    pool: str = ""
    """Comparisons with the same word have variances in the same unit and help one another."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """A comparison as its family sees it."""

    effect: Interval
    p: float
    """One-sided: the chance of such a difference where there is no effect (for equality, where it is x or more)."""
    p_holm: float
    p_bh: float
    """Benjamini and Hochberg's: called *holds* up to q, at most a share of q of them is wrong on average."""


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean difference towards the claim with its standard error."""

    mean: float
    error: float
    df: float

    def below(self, bound: float) -> float:
        """One-sided p-value that the truth is `bound` or less."""
        if self.df <= 0:
            return 1.0
        if self.error == 0:
            return float(self.mean <= bound)
        return t_cdf(-(self.mean - bound) / self.error, self.df)

    def reach(self, alpha: float) -> float:
        """Half width of an interval whose one end is wrong with chance alpha."""
        if self.df <= 0:
            return np.inf
        return t_quantile(1 - alpha, self.df) * self.error


def corrected(asked: Sequence[Asked], level: float = 0.95) -> list[Corrected]:
    """Each comparison with its p-values and the interval that its family leaves it."""
    if not 0 < level < 1:
        raise StatsError(f"a confidence level lies strictly between 0 and 1 (0.95, say), got {level}")
    half = (1 - level) / 2
    priors = _priors(asked)
    means = [_mean(a, priors.get(a.pool)) for a in asked]
    gain = [_p_holds(a, m) for a, m in zip(asked, means, strict=True)]
    short = [_p_short(a, m) for a, m in zip(asked, means, strict=True)]
    ends = zip(holm_alphas(gain, half), holm_alphas(short, half), strict=True)
    adjusted, shares = holm(gain), benjamini_hochberg(gain)
    out: list[Corrected] = []
    for i, (a, m, pair) in enumerate(zip(asked, means, ends, strict=True)):
        low, high = (min(pair), min(pair)) if a.direction == "equal" else pair
        method = "paired t" + (", moderated" if a.pool in priors else "")
        method += f", Holm over {len(asked)}" if len(asked) > 1 else ""
        found = Interval(m.mean, m.mean - m.reach(low), m.mean + m.reach(high), level, method, len(a.differences))
        effect = found.flipped() if a.direction == "lower" else found
        out.append(Corrected(effect, gain[i], adjusted[i], shares[i]))
    return out


def _priors(asked: Sequence[Asked]) -> dict[str, VariancePrior]:
    out: dict[str, VariancePrior] = {}
    for pool in {a.pool for a in asked}:
        mine = [finite(a.differences) for a in asked if a.pool == pool and len(a.differences) > 1]
        prior = variance_prior([float(d.var(ddof=1)) for d in mine], [len(d) - 1 for d in mine])
        if prior is not None:
            out[pool] = prior
    return out


def _mean(a: Asked, prior: VariancePrior | None) -> _Mean:
    d = finite(a.differences) * (-1 if a.direction == "lower" else 1)
    if len(d) < 2:
        return _Mean(float(d.mean()), np.inf, 0)
    variance, df = float(d.var(ddof=1)), float(len(d) - 1)
    if prior is not None:
        variance, df = prior.moderate(variance, df)
    return _Mean(float(d.mean()), (variance / len(d)) ** 0.5, df)


def _p_holds(a: Asked, m: _Mean) -> float:
    if a.direction == "equal":
        return max(m.below(-a.least), _mirrored(m).below(-a.least))
    return m.below(0.0)


def _p_short(a: Asked, m: _Mean) -> float:
    if a.direction == "equal":
        return min(1.0, 2 * min(m.below(a.least), _mirrored(m).below(a.least)))
    return _mirrored(m).below(-a.least)


def _mirrored(m: _Mean) -> _Mean:
    return _Mean(-m.mean, m.error, m.df)
