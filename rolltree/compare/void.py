"""Experiments that could not have answered. An entry that has a reason here is *void*, which is no verdict.

Every rule is read from the runs themselves: their held-out curves, what their training rollouts were like, and the
counter that the recipe's card names. What an old entry did not record cannot make it void.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from rolltree.compare.contrast import HARD
from rolltree.compare.names import PER_LEAF, row_name
from rolltree.recipe.recipe import Card, Evidence


@dataclass(frozen=True)
class SeedResult:
    """One seed: the recipe's number, the baseline's, and curves by label as (costs, values)."""

    seed: int
    value: float
    baseline: float
    curves: Mapping[str, tuple[list[float], list[float]]] = field(
        default_factory=dict[str, tuple[list[float], list[float]]]
    )
    also: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Other numbers of the same two runs, the recipe's and the baseline's: what its own number may have cost."""
    learned: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Held-out pass@1 of each arm before the first step and at the end."""


SIGNAL = 0.05
"""Training rollouts of which a smaller share is right give next to no gradient."""
ZERO_VARIANCE = 0.8
"""From this share of groups without variance on, an arm is nearly all zero-variance."""
CEILING = 0.9
"""A baseline from here on leaves no room above it."""
COLLAPSED = 0.5
"""A baseline that ends below this share of where it began has collapsed."""
RESTED = 0.5
"""A mechanism that did nothing in so large a share of the runs never acted, whatever it did in the others."""
LEARNED = 0.05
"""Where neither arm gains as much in pass@1, nothing was learned that could differ."""


def reasons(card: Card, question: Evidence, results: Sequence[SeedResult]) -> list[str]:
    """Why the runs behind an entry of training could not have answered its question; empty where they could."""
    found = [
        _constructed(card, question), _idle(card, results), _no_signal(results), _zero_variance(results),
        _ceiling(question, results), _collapsed(question, results), _nothing_learned(question, results),
    ]  # fmt: skip
    return [reason for reason in found if reason]


def idle(results: Sequence[SeedResult]) -> list[str]:
    """Why a check shows nothing: all that it counted of its mechanism stayed at 0. Empty where something moved, and
    where nothing was counted."""
    moved = _counted(results)
    return (
        [f"the mechanism never acted ({', '.join(moved)}: 0 throughout)"] if moved and not any(moved.values()) else []
    )


def _counted(results: Sequence[SeedResult]) -> dict[str, float]:
    return {name: mean(r.also[name][0] for r in results) for name in (results[0].also if results else ())}


def acted(card: Card, results: Sequence[SeedResult], kind: str = "training") -> str:
    """What the card's counter says, as reports print it: the metric's name and its mean over the treated runs. Of a
    check, all that it counted."""
    if kind != "training":
        told = (f"`{name}` {value:.3g}" for name, value in _counted(results).items())
        return "; ".join(told) or "not counted"
    if card.counter is None:
        return "no counter"
    values = _both(results, card.counter.metric)
    return f"`{card.counter.metric}` " + ("not recorded" if values is None else f"{values[0]:.3g}")


def _constructed(card: Card, question: Evidence) -> str:
    if row_name(question.metric) in PER_LEAF and "generate" in card.stages:
        return f"{question.metric} follows from how {card.name} builds its trees, whatever is learned"
    return ""


def _idle(card: Card, results: Sequence[SeedResult]) -> str:
    if card.counter is None or any(card.counter.metric not in r.also for r in results):
        return ""
    name, rest = card.counter.metric, card.counter.rest
    seen = [r.also[name][0] for r in results]
    resting = [not card.counter.moved(value) for value in seen]
    far = max(abs(value - rest) for value, rests in zip(seen, resting, strict=True) if rests) if any(resting) else 0.0
    told = f"{rest:g}" if not far else f"within {card.counter.least:g} of {rest:g}"
    return f"the mechanism never acted (`{name}` is {told} {_share_of(resting)})" if rested(resting) else ""


def rested(resting: Sequence[bool]) -> bool:
    """Whether too many runs had a counter that never moved."""
    return bool(resting) and sum(resting) >= RESTED * len(resting)


def _share_of(resting: Sequence[bool]) -> str:
    return "throughout" if all(resting) else f"in {sum(resting)} of {len(resting)} runs"


def _no_signal(results: Sequence[SeedResult]) -> str:
    solved = _both(results, "solved")
    if solved is None or solved[0] >= SIGNAL:
        return ""
    return f"{100 * solved[0]:.1f} % of the treated arm's rollouts are right, too few to learn from"


def _zero_variance(results: Sequence[SeedResult]) -> str:
    flat = _both(results, "zero_variance")
    # One rollout a prompt is never a group: both arms then have no variance by definition, and use none.
    if flat is None or flat[0] < ZERO_VARIANCE or flat == (1.0, 1.0):
        return ""
    return f"{100 * flat[0]:.0f} % of the treated arm's groups are without variance"


def _ceiling(question: Evidence, results: Sequence[SeedResult]) -> str:
    asked = question.metric.removesuffix(" area").removesuffix(HARD)
    judged = asked if asked.startswith("pass@") else "pass@1"
    if judged == "pass@k":
        judged = next((name.rpartition("/")[2] for r in results for name in r.also if name.startswith("eval/pass@")
                       and not name.endswith("@1")), "pass@1")  # fmt: skip
    ends = _both(results, judged)
    if ends is None or ends[1] < CEILING:
        return ""
    return f"the baseline stands at its ceiling ({judged} {100 * ends[1]:.1f} %)"


def _collapsed(question: Evidence, results: Sequence[SeedResult]) -> str:
    grown = _growth(results, question.baseline)
    if grown is None or grown[1] >= COLLAPSED * grown[0]:
        return ""
    return f"the baseline collapsed (pass@1 from {100 * grown[0]:.1f} % to {100 * grown[1]:.1f} %)"


def _nothing_learned(question: Evidence, results: Sequence[SeedResult]) -> str:
    sides = [_growth(results, label) for label in sorted({label for r in results for label in r.learned})]
    gains = [grown[1] - grown[0] for grown in sides if grown is not None]
    if len(gains) < 2 or max(gains) >= LEARNED:
        return ""
    return f"neither arm learned (pass@1 {100 * max(gains):+.1f} points at most)"


def _growth(results: Sequence[SeedResult], label: str) -> tuple[float, float] | None:
    """Where the arm's held-out pass@1 begins and ends, mean over seeds; None where it was not stored."""
    curves = [r.learned[label] for r in results if label in r.learned]
    if len(curves) < len(results) or not curves:
        return None
    return mean(c[0] for c in curves), mean(c[1] for c in curves)


def _both(results: Sequence[SeedResult], metric: str) -> tuple[float, float] | None:
    """A metric of treated arm and baseline, mean over seeds; None where it was not stored for all."""
    name = row_name(metric)
    if not results or any(name not in r.also for r in results):
        return None
    return mean(r.also[name][0] for r in results), mean(r.also[name][1] for r in results)
