"""What an answer is worth before it is handed over: step scorers by name (`StepScorer`).

The policy's own doubt, the verifier's word as if the rollout ended there, rollouts that look ahead, or a judge of your
own. What they find out about an answer stays in the tree: an outcome stays an outcome, with its credit.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from rolltree.errors import RolltreeError, unknown
from rolltree.generate.hand import Hand
from rolltree.generate.signals import Signal
from rolltree.generate.stepsearch import Confidence, StepScorer
from rolltree.generate.turns import play, settle
from rolltree.knobs import checked_knobs
from rolltree.registry import check_knobs, in_file
from rolltree.task.foreign.locate import locate
from rolltree.tree import Node


class ScorerError(RolltreeError, ValueError):
    """A scorer that cannot be made, or that gave something else than a number; names it and the way out."""


@dataclass(frozen=True, slots=True)
class Sureness:
    """Minus the mean entropy of the answer's tokens: the answer the policy doubted least."""

    signal: Signal = field(default_factory=lambda: Signal("entropy:full"))

    @property
    def want(self) -> frozenset[str]:
        """The signal's."""
        return self.signal.want

    async def __call__(self, hand: Hand, ends: Sequence[Node]) -> Sequence[float]:
        """One number for each answer; one without tokens doubts nothing."""
        return [-float(self.signal.read(end).mean()) if len(end) else 0.0 for end in ends]


@dataclass(frozen=True, slots=True)
class Verified:
    """The verifier's score as if the rollout ended with the answer. Each is an outcome, and stays one."""

    want: frozenset[str] = frozenset()

    async def __call__(self, hand: Hand, ends: Sequence[Node]) -> Sequence[float]:
        """Verify all ends; what stays broken is a failed node and worth nothing."""
        verdicts = await asyncio.gather(*(hand.verify(end) for end in ends))
        return [-math.inf if verdict is None else verdict.score for verdict in verdicts]


@dataclass(frozen=True, slots=True)
class LookAhead:
    """The mean outcome of `rollouts` rollouts from behind the answer: its value by Monte Carlo (VinePPO's estimate).

    They are rollouts like any other: they stay in the tree with their outcomes, whichever answer is handed over.
    """

    rollouts: int = 2
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.rollouts < 1:
            raise ScorerError(f"rollouts={self.rollouts} looks nowhere; give 1 or more")

    async def __call__(self, hand: Hand, ends: Sequence[Node]) -> Sequence[float]:
        """Play on from every end."""
        return await asyncio.gather(*(self._value(hand, end) for end in ends))

    async def _value(self, hand: Hand, end: Node) -> float:
        here = await settle(hand, end)
        if here.status == "open":
            await asyncio.gather(*(play(hand, here) for _ in range(self.rollouts)))
        found = [leaf.scores["reward"] for leaf in hand.tree.leaves(here) if "reward" in leaf.scores]
        return sum(found) / len(found) if found else -math.inf


@dataclass(frozen=True, slots=True)
class Judged:
    """A function of your own, `judge(prompt, text)` (async or not): the item's prompt, and all that follows it."""

    function: Callable[[str, str], Any]
    want: frozenset[str] = frozenset()

    async def __call__(self, hand: Hand, ends: Sequence[Node]) -> Sequence[float]:
        """One judge call of the budget for each; where none is left the answer is worth nothing, where it stays broken
        the answer has failed."""

        async def one(end: Node) -> float:
            async def ask() -> float:
                told = self.function(hand.item.prompt, hand.text(end))
                value: Any = await told if inspect.isawaitable(told) else told
                if isinstance(value, bool | int | float) and math.isfinite(value):
                    return float(value)
                raise ScorerError(f"the judge returned {value!r:.60}; return a finite number")

            value = await hand.judge(ask, about="an answer", node=end)
            return -math.inf if value is None else value

        return await asyncio.gather(*map(one, ends))


SCORERS: Mapping[str, Callable[..., StepScorer]] = {
    "confidence": Confidence, "entropy": Sureness, "verifier": Verified, "lookahead": LookAhead,
}  # fmt: skip


def scorer_of(name: str, **knobs: Any) -> StepScorer:
    """A scorer by name with its knobs, or a judge as FILE.py:FUNCTION."""
    if in_file(name):
        if knobs:
            raise ScorerError(f"the judge {name} is a function and has no knob {min(knobs)!r}; leave it out")
        function = locate(name, "the judge")
        if not callable(function):
            raise ScorerError(f"the judge {name} is no function; name one that takes a prompt and a text")
        return Judged(function)
    if name not in SCORERS:
        raise unknown("scorer", name, SCORERS, "or FILE.py:FUNCTION for a judge of your own")
    make: Any = SCORERS[name]
    allowed = [f.name for f in fields(make) if f.init and f.name not in ("want", "signal")]
    check_knobs(f"scorer {name!r}", knobs, allowed)
    return cast(StepScorer, make(**checked_knobs(f"scorer {name!r}: ", make, knobs)))
