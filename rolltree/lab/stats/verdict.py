"""A verdict in plain words about a claimed difference, with error rates that follow from the interval alone.

For a claim "the effect is positive and at least `least`", judged by an interval of level 1 − α:

- *holds*: the interval lies above 0 and does not exclude `least`. Wrong with chance ≤ α/2 when there is no effect.
- *fails*: the interval lies below `least` (below 0 when `least` is 0). Wrong with chance ≤ α/2 when the claim is true.
- *no difference found*: everything else. It never means "equal".

For a claim of equality within a margin: *holds* when the interval lies within ± margin (two one-sided tests, Schuirmann
1987), *fails* when it does not and excludes 0, otherwise *no difference found*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rolltree.lab.stats.error import StatsError
from rolltree.lab.stats.interval import Interval

Outcome = Literal["holds", "no difference found", "fails"]
Direction = Literal["higher", "lower", "equal"]


@dataclass(frozen=True, slots=True)
class StatedVerdict:
    """An outcome and the sentence that says it with its numbers."""

    outcome: Outcome
    words: str


def judge(effect: Interval, *, direction: Direction = "higher", least: float = 0.0) -> Outcome:
    """The outcome for an effect (treatment − baseline) under a claim; `least` is a size, `direction` gives its sign."""
    if least < 0:
        raise StatsError(f"the least effect is a size and cannot be {least}: give the direction separately")
    if direction == "equal":
        if least == 0:
            raise StatsError("a claim of equality needs a margin above 0: nothing measured is ever exactly equal")
        if -least < effect.low and effect.high < least:
            return "holds"
        return "no difference found" if 0 in effect else "fails"
    toward = effect if direction == "higher" else effect.flipped()
    if toward.high < least or toward.high < 0:
        return "fails"
    return "holds" if toward.low > 0 else "no difference found"


def describe(
    effect: Interval,
    *,
    subject: str,
    baseline: str,
    metric: str,
    direction: Direction = "higher",
    least: float = 0.0,
    unit: str = "",
    per: str = "seeds",
) -> StatedVerdict:
    """The outcome and one sentence: who, what, by how much, with which interval over how many of what."""
    outcome = judge(effect, direction=direction, least=least)
    size = f"{_signed(effect.estimate, unit)} in {metric}"
    span = _span(effect, unit, per)
    toward = effect.flipped() if direction == "lower" else effect
    if outcome == "no difference found":
        words = f"no difference found between {subject} and {baseline}: {size} ({span})"
        if least:
            words += f"; the claimed {_plain(least, unit)} is neither shown nor excluded"
    elif outcome == "holds":
        verb = "equals" if direction == "equal" else "is better than"
        words = f"holds: {subject} {verb} {baseline}, {size} ({span})"
        if direction == "equal":
            words += f", within the margin of {_plain(least, unit)}"
        elif toward.estimate < least:
            words += f"; the estimate is below the claimed {_plain(least, unit)}, which the interval still contains"
    elif direction == "equal":
        words = f"fails: {subject} differs from {baseline}, {size} ({span})"
    elif toward.high < 0:
        words = f"fails: {subject} is worse than {baseline}, {size} ({span})"
    elif toward.low > 0:
        words = f"fails: {subject} is better than {baseline}, but by less than claimed, {size} ({span})"
    else:
        words = f"fails: an effect of {_plain(least, unit)} is excluded, {size} ({span})"
    return StatedVerdict(outcome, words)


def _span(effect: Interval, unit: str, per: str) -> str:
    if effect.n == 1 and effect.low == effect.high:
        return "exact, no randomness"
    level = f"{100 * effect.level:.3g} % {effect.method} interval"
    if effect.low == float("-inf"):
        return f"one of {per}: no interval can be given"
    return f"{level} {_signed(effect.low, unit)} to {_signed(effect.high, unit)} over {effect.n} {per}"


def _signed(x: float, unit: str) -> str:
    return f"{100 * x:+.1f} points" if unit == "points" else f"{x:+.4g}{f' {unit}' if unit else ''}"


def _plain(x: float, unit: str) -> str:
    return f"{100 * x:.1f} points" if unit == "points" else f"{x:.4g}{f' {unit}' if unit else ''}"
