"""What a claim of shorter answers rests on beside the length: that they are as often right."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.compare.stats import Interval, StatedVerdict, paired_interval
from rolltree.recipe.recipe import Evidence
from studies.lab.entry import SeedResult

LENGTH, RIGHT = "eval/length", "eval/pass@1"
RULE = (
    "\nA claim of shorter answers is one of equal accuracy: where its length would *hold* and the paired interval of "
    "pass@1 lies below 0, the verdict is *worse*.\n"
)
"""As pages print it."""


def price(asked: Evidence, results: Sequence[SeedResult]) -> Interval | None:
    """By how much fewer answers are right, where shorter ones were claimed and that is sure; None elsewhere."""
    pairs = [r.also[RIGHT] for r in results if RIGHT in r.also]
    if (asked.metric, asked.direction) != (LENGTH, "lower") or len(pairs) < 2:
        return None
    found = paired_interval([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
    return found if found.high < 0 else None


def at_equal_accuracy(said: StatedVerdict, asked: Evidence, results: Sequence[SeedResult]) -> StatedVerdict:
    """The verdict on a length; *worse* where shorter answers were paid for with right ones."""
    paid = price(asked, results) if said.outcome == "holds" else None
    if paid is None:
        return said
    lost = f"{100 * paid.estimate:+.1f} points in pass@1 ({100 * paid.low:+.1f} to {100 * paid.high:+.1f})"
    words = said.words.partition(": ")[2]
    return StatedVerdict("worse", f"worse: shorter at the price of right answers, {lost}; {words}")
