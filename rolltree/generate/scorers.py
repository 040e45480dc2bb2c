"""What an answer is worth before it is handed over: judges of single answers by name.

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

import numpy as np

from rolltree.errors import RolltreeError, unknown
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Entry, Judge, Opinion, Question, entries, fitting, hand_of
from rolltree.generate.setting import Gone, attempt
from rolltree.generate.signals import Signal
from rolltree.generate.turns import play, settle
from rolltree.knobs.values import checked_knobs
from rolltree.registry import check_knobs, in_file
from rolltree.task.foreign.parts import locate
from rolltree.tree import Node


class ScorerError(RolltreeError, ValueError):
    """A scorer that cannot be made, or that gave something else than a number; names it and the way out."""


@dataclass(frozen=True, slots=True)
class Sureness:
    """Minus the mean entropy of the answer's tokens: the answer the policy doubted least."""

    signal: Signal = field(default_factory=lambda: Signal("entropy:full"))

    @property
    def name(self) -> str:
        """What is read."""
        return f"sureness {self.signal}"

    @property
    def want(self) -> frozenset[str]:
        """The signal's."""
        return self.signal.want

    def calls(self, size: int) -> int:
        """None: entropies are recorded."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """One number for each answer; one without tokens doubts nothing."""
        return [[-float(self.signal.read(e.node).mean()) if len(e.node) else 0.0 for e in q] for q in questions]


@dataclass(frozen=True, slots=True)
class Verified:
    """The verifier's score as if the rollout ended with the answer. Each is an outcome, and stays one.

    With `otherwise` only what has ended is verified, its score cut to [0, 1], and that judge says what the rest is
    worth. Only honest where the verifier may be asked while one searches: visible tests, an equation that can be
    checked. Against a hidden answer it is an oracle.
    """

    otherwise: Judge | None = None

    @property
    def name(self) -> str:
        """The verifier, and what stands in for it."""
        return "verifier" if self.otherwise is None else f"verified, else {self.otherwise.name}"

    @property
    def want(self) -> frozenset[str]:
        """What `otherwise` reads."""
        return frozenset() if self.otherwise is None else self.otherwise.want

    def calls(self, size: int) -> int:
        """Those of `otherwise`: verifying is no call of a judge."""
        return 0 if self.otherwise is None else self.otherwise.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Verify all ends, what stays broken being a failed node without an opinion; or read verdicts and opinions."""
        if self.otherwise is None:
            here = hand_of(hand, self)
            verdicts = await asyncio.gather(*(here.verify(entry.node) for [entry] in questions))
            return [None if verdict is None else [verdict.score] for verdict in verdicts]
        opinions = await self.otherwise(hand, questions, rng)
        return [
            None if opinion is None else [
                min(max(e.node.scores["reward"], 0.0), 1.0) if "reward" in e.node.scores else x
                for e, x in zip(question, opinion, strict=True)
            ]
            for question, opinion in zip(questions, opinions, strict=True)
        ]  # fmt: skip


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

    @property
    def name(self) -> str:
        """How far it looks."""
        return f"lookahead rollouts={self.rollouts}"

    def calls(self, size: int) -> int:
        """None: rollouts are paid in tokens."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Play on from every end."""
        here = hand_of(hand, self)
        return await asyncio.gather(*(self._value(here, entry.node) for [entry] in questions))

    async def _value(self, hand: Hand, end: Node) -> Opinion:
        here = await settle(hand, end)
        if here.status == "open":
            await asyncio.gather(*(play(hand, here) for _ in range(self.rollouts)))
        found = [leaf.scores["reward"] for leaf in hand.tree.leaves(here) if "reward" in leaf.scores]
        return [sum(found) / len(found)] if found else None


@dataclass(frozen=True, slots=True)
class FunctionJudge:
    """A function of your own, `judge(prompt, text)` (async or not): the item's prompt, and all that follows it."""

    function: Callable[[str, str], Any]
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The function's."""
        return f"function {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def calls(self, size: int) -> int:
        """One for each answer."""
        return size

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask about each by itself: where one stays broken, that answer has failed."""
        here = hand_of(hand, self)
        return await asyncio.gather(*(self._opinion(here, entry) for [entry] in questions))

    async def value(self, prompt: str, text: str) -> float:
        """What the function says; anything but a finite number is refused."""
        told = self.function(prompt, text)
        value: Any = await told if inspect.isawaitable(told) else told
        if isinstance(value, bool | int | float) and math.isfinite(value):
            return float(value)
        raise ScorerError(f"the judge returned {value!r:.60}; return a finite number")

    async def _opinion(self, hand: Hand, entry: Entry) -> Opinion:
        patience = hand.setting.patience
        try:
            return [await attempt(
                "judging an answer", lambda: self.value(hand.item.prompt, entry.text), patience, patience.judge_seconds,
                on_retry=hand.retried(entry.node),
            )]  # fmt: skip
        except Gone as gone:
            hand.fail(entry.node, "judging an answer", gone.cause, tries=gone.tries)
            return None


async def worth(hand: Hand, judge: Judge, ends: Sequence[Node]) -> list[float]:
    """What each end is worth; one that the judge said nothing of is worth nothing."""
    asked = [[entry] for entry in entries(hand, ends, texts=judge.calls(1) > 0)]
    if judge.calls(1):
        said = await hand.judge(judge, asked, about="answers")
    else:
        # What grows rollouts takes its own time, which is no judge's.
        said = fitting(judge, asked, await judge(hand, asked, hand.rng.child("judge", judge.name).generator()))
    return [-math.inf if opinion is None or math.isnan(opinion[0]) else opinion[0] for opinion in said]


SCORERS: Mapping[str, Callable[..., Judge]] = {
    "confidence": Confidence, "entropy": Sureness, "verifier": Verified, "lookahead": LookAhead,
}  # fmt: skip


def scorer_of(name: str, **knobs: Any) -> Judge:
    """A scorer by name with its knobs, or a judge as FILE.py:FUNCTION."""
    if in_file(name):
        if knobs:
            raise ScorerError(f"the judge {name} is a function and has no knob {min(knobs)!r}; leave it out")
        function = locate(name, "the judge")
        if not callable(function):
            raise ScorerError(f"the judge {name} is no function; name one that takes a prompt and a text")
        return FunctionJudge(function)
    if name not in SCORERS:
        raise unknown("scorer", name, SCORERS, "or FILE.py:FUNCTION for a judge of your own")
    make: Any = SCORERS[name]
    allowed = [f.name for f in fields(make) if f.init and f.name not in ("name", "want", "signal", "otherwise")]
    check_knobs(f"scorer {name!r}", knobs, allowed)
    return cast(Judge, make(**checked_knobs(f"scorer {name!r}: ", make, knobs)))
