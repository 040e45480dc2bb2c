"""What a second wave of attempts made of the first one: how much it broke, and how much it mended."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Floats

FIRST_WAVE, LAST_WAVE = "first_wave", "last_wave"
"""Keys in the scores of a tree's root: share of right attempts before anything was shown, and in the last wave."""


def waves(r: Rollouts) -> Numbers:
    """P(last wrong | first right) and P(last right | first wrong) over prompts that had both waves."""
    roots = r.parent < 0
    return regression(r.score(FIRST_WAVE)[roots], r.score(LAST_WAVE)[roots])


def regression(first: Floats, last: Floats) -> Numbers:
    """Both rates from shares of right attempts by prompt; with single attempts they are counts.

    An attempt of each wave is drawn: Σ aᵢ(1 − bᵢ)/Σ aᵢ and Σ (1 − aᵢ)bᵢ/Σ (1 − aᵢ). Left out where nobody was right
    at first, or wrong.
    """
    known = ~(np.isnan(first) | np.isnan(last))
    a, b = first[known], last[known]
    out: Numbers = {}
    if a.sum() > 0:
        out["reward/regressed"] = float((a * (1 - b)).sum() / a.sum())
    if (1 - a).sum() > 0:
        out["reward/mended"] = float(((1 - a) * b).sum() / (1 - a).sum())
    return out
