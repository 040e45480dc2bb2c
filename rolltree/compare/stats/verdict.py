"""A verdict in plain words about a claimed difference, with error rates that follow from the interval alone.

The rules below are the only statement of what a verdict means: `judge` walks them, and pages print their sentences.
"Above" is in the direction of the claim. With an interval of level 1 − α, *holds* is wrong with chance α/2 at most
where there is no effect, and *worse*, *claim excluded* and *no effect above x* together with chance α/2 at most where
the claim is true. A claim of equality is judged by two one-sided tests (Schuirmann 1987).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rolltree.compare.stats.paired import Interval, StatsError

Outcome = Literal["holds", "worse", "claim excluded", "no effect above x", "no difference found", "void"]
"""*void* is no verdict: the experiment could not have answered (`rolltree.compare.void`)."""
Direction = Literal["higher", "lower", "equal"]


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """When an outcome is given; the first rule that applies decides."""

    outcome: Outcome
    when: str
    """What must be true of the interval, as pages print it."""
    applies: Callable[[Interval, float], bool]


GAIN: tuple[VerdictRule, ...] = (
    VerdictRule("worse", "lies below 0", lambda i, x: i.high < 0),
    VerdictRule("claim excluded", "lies above 0 and below x, the least effect claimed: better, by less than claimed",
         lambda i, x: i.low > 0 and i.high < x),
    VerdictRule("holds", "lies above 0 and does not lie below x", lambda i, x: i.low > 0),
    VerdictRule("no effect above x", "holds 0 and lies below x", lambda i, x: i.high < x),
    VerdictRule("no difference found", "holds 0 and x: it says neither, and never means “equal”", lambda i, x: True),
)  # fmt: skip
"""Rules for a claim of an effect of at least x."""
EQUALITY: tuple[VerdictRule, ...] = (
    VerdictRule("holds", "lies between −x and x", lambda i, x: -x < i.low and i.high < x),
    VerdictRule("claim excluded", "lies above x or below −x", lambda i, x: i.low > x or i.high < -x),
    VerdictRule("no difference found", "is anywhere else: it says neither", lambda i, x: True),
)
"""Rules for a claim that the effect is smaller than x either way."""


@dataclass(frozen=True, slots=True)
class StatedVerdict:
    """An outcome and the sentence that says it with its numbers."""

    outcome: Outcome
    words: str


def judge(effect: Interval, *, direction: Direction = "higher", least: float = 0.0) -> Outcome:
    """The outcome for an effect (treatment − baseline) under a claim; `least` is a size, `direction` gives its sign."""
    if least < 0:
        raise StatsError(f"the least effect is a size and cannot be {least}: give the direction separately")
    if direction == "equal" and least == 0:
        raise StatsError("a claim of equality needs a margin above 0: nothing measured is ever exactly equal")
    toward = effect.flipped() if direction == "lower" else effect
    rules = EQUALITY if direction == "equal" else GAIN
    return next(rule.outcome for rule in rules if rule.applies(toward, least))


def rule_table() -> str:
    """The rules of a claimed gain as a table of Markdown, for pages."""
    rows = "".join(f"| {rule.outcome} | {rule.when} |\n" for rule in GAIN)
    return "| verdict | the interval of the difference |\n|---|---|\n" + rows


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
    size = f"{_signed(effect.estimate, unit)} in {metric} ({_span(effect, unit, per)})"
    x = _plain(least, unit)
    if direction == "equal":
        return StatedVerdict(outcome, _of_equality(outcome, subject, baseline, size, x))
    toward = effect.flipped() if direction == "lower" else effect
    if outcome == "holds":
        words = f"holds: {subject} is better than {baseline}, {size}"
        if toward.estimate < least:
            words += f"; the estimate is below the claimed {x}, which the interval still contains"
    elif outcome == "worse":
        words = f"worse: {subject} is worse than {baseline}, {size}"
    elif outcome == "claim excluded":
        words = f"claim excluded: {subject} is better than {baseline}, but by less than the claimed {x}, {size}"
    elif outcome == "no effect above x":
        words = f"no effect above x: an effect of {x} of {subject} over {baseline} is excluded, {size}"
    else:
        words = f"no difference found between {subject} and {baseline}: {size}"
        if least:
            words += f"; the claimed {x} is neither shown nor excluded"
    return StatedVerdict(outcome, words)


def _of_equality(outcome: Outcome, subject: str, baseline: str, size: str, x: str) -> str:
    if outcome == "holds":
        return f"holds: {subject} equals {baseline}, {size}, within the margin of {x}"
    if outcome == "claim excluded":
        return f"claim excluded: {subject} differs from {baseline} by more than {x}, {size}"
    return f"no difference found beyond {x} between {subject} and {baseline}, and none excluded: {size}"


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
