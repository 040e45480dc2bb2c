"""How good a judge is where the truth is known: what a run states beside anything that rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.judge.protocol import Opinion
from rolltree.generate.judge.votes import winner


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge against the truth. Shares are of the questions that it answered; NaN = there were none."""

    questions: int
    accuracy: float
    """Verdicts that name the right entry; abstentions are no verdicts."""
    abstained: float
    """Share of the questions on which it said nothing, or not the same in both orders."""
    failed: int
    """Questions that stayed unanswered."""
    first: float
    """Share of the readings that prefer the entry that is read first: one half without a bias for the place."""


def compared(there: Sequence[Opinion], back: Sequence[Opinion], right: Sequence[int]) -> Calibration:
    """Pairs read in an order and its reverse; `right` is the place of the better entry in the first order."""
    verdicts: list[bool] = []
    silent, failed, first = 0, 0, list[bool]()
    for one, two, truth in zip(there, back, right, strict=True):
        if one is None or two is None:
            failed += 1
            continue
        a, b = winner(one), winner(two)
        first += [w == 0 for w in (a, b) if w is not None]
        if a is None or b is None or a == b:  # the same place twice is another entry
            silent += 1
        else:
            verdicts.append(a == truth)
    asked = len(right) - failed
    return Calibration(len(right), _mean(verdicts), silent / asked if asked else float("nan"), failed, _mean(first))


def auc(grades: Sequence[float], right: Sequence[bool]) -> float:
    """Chance that a right entry is graded above a wrong one, ties half; NaN without both kinds."""
    good = np.asarray([g for g, r in zip(grades, right, strict=True) if r])
    bad = np.asarray([g for g, r in zip(grades, right, strict=True) if not r])
    if not len(good) or not len(bad):
        return float("nan")
    return float((good[:, None] > bad).mean() + 0.5 * (good[:, None] == bad).mean())


def brier(grades: Sequence[float], right: Sequence[bool]) -> float:
    """Squared error of grades read as probabilities."""
    return float(np.mean([(g - r) ** 2 for g, r in zip(grades, right, strict=True)])) if grades else float("nan")


def correlation(votes: Sequence[Sequence[float]]) -> float:
    """Mean correlation between votes over questions (rows are votes): near 1, more votes say nothing new."""
    table = np.asarray(votes, np.float64)
    spread = table.std(axis=1) > 0
    if spread.sum() < 2:
        return float("nan")
    found = np.atleast_2d(np.corrcoef(table[spread]))
    return float(found[np.triu_indices(len(found), 1)].mean())


def alpha(grades: NDArray[np.float64]) -> float:
    """Krippendorff's α of grades on a scale: 1 − D_observed / D_expected with squared differences.

    Rows are judges, NaN = none given. 1 = they agree on everything, 0 = as by chance; NaN where nothing can differ.
    """
    known = ~np.isnan(grades)
    pairable = known.sum(0) >= 2
    units = [grades[known[:, i], i] for i in np.flatnonzero(pairable)]
    if not units:
        return float("nan")
    pooled = np.concatenate(units)
    observed = sum(((u[:, None] - u) ** 2).sum() / (len(u) - 1) for u in units) / len(pooled)
    expected = ((pooled[:, None] - pooled) ** 2).sum() / (len(pooled) * (len(pooled) - 1))
    return float(1 - observed / expected) if expected > 0 else float("nan")


def _mean(flags: Sequence[bool]) -> float:
    return float(np.mean(flags)) if flags else float("nan")
