"""Rewards that come with the package. Each reads the answer (what stands behind the think tags), format the whole."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolltree.task.data.chat import Think
from rolltree.task.final import NUMBER
from rolltree.task.foreign.threads import awaited
from rolltree.task.items import TaskError
from rolltree.task.judge import warn_where_open
from rolltree.task.math_judge import judge_math, unreadable
from rolltree.task.math_score import require_math
from rolltree.task.protocol import Item


@dataclass(frozen=True, slots=True)
class Completion:
    """What a reward is asked about."""

    item: Item
    text: str
    """The model's last turn; where there are no tools, everything after the prompt."""
    whole: str
    """Everything after the prompt, answers of tools included."""
    answer: str
    """What stands in the last turn behind the think tags, stripped."""
    think: Think


@dataclass(frozen=True, slots=True)
class RewardResult:
    """What a reward says."""

    value: Any
    """Its number, unchecked."""
    answer: str | None = None
    """The answer in normal form, as votes compare it."""
    why: str = ""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


Ask = Callable[[Completion], Awaitable[RewardResult]]


@dataclass(frozen=True, slots=True)
class Builtin:
    """A reward by name."""

    about: str
    make: Callable[[str], Ask]
    """Makes it from what stands in brackets behind the name."""
    needs_answer: bool = True
    parts: tuple[str, ...] = ()
    """What its results measure beside their number."""
    unread: Callable[[Sequence[Item]], tuple[Item, str] | None] | None = None
    """The first item whose reference it cannot read, and why; None where it reads all, or takes any text."""


_WAY = "mend it or leave the row out, or take another reward, such as --reward exact"


async def exact(said: Completion) -> RewardResult:
    """1 where the answer is the reference, but for blanks around it."""
    right = said.answer == str(said.item.answer).strip()
    return RewardResult(float(right), said.answer or None, "" if right else f"not {said.item.answer!r}")


async def contains(said: Completion) -> RewardResult:
    """1 where the reference stands somewhere in the answer."""
    right = str(said.item.answer).strip() in said.answer
    return RewardResult(
        float(right), said.answer or None, "" if right else f"{said.item.answer!r} does not stand in it"
    )


async def number(said: Completion) -> RewardResult:
    """1 where the last number of the answer equals the reference."""
    wanted = last_number(str(said.item.answer))
    if wanted is None:
        raise TaskError(f"the answer {said.item.answer!r} of item {said.item.id!r} is no number; use another reward")
    found = last_number(said.answer)
    if found is None:
        return RewardResult(0.0, None, "no number was given")
    right = abs(found - wanted) <= 1e-9 * max(1.0, abs(wanted))
    return RewardResult(float(right), f"{found:.12g}", "" if right else f"found {found:.12g} instead of {wanted:.12g}")


async def math(said: Completion) -> RewardResult:
    """1 where math-verify finds the answer equal to the reference."""
    verdict = await judge_math(str(said.item.answer), said.answer)
    return RewardResult(verdict.score, verdict.answer, verdict.why, verdict.parts)


async def shape(said: Completion) -> RewardResult:
    """1 where one block of thought comes first and an answer follows."""
    right = said.think.well_formed(said.text, said.item.prompt)
    tags = f"{said.think.opens}…{said.think.closes} and then an answer"
    return RewardResult(float(right), said.answer or None, "" if right else f"not {tags}")


def last_number(text: str) -> float | None:
    """The last number that stands in a text."""
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _plain(ask: Ask, name: str) -> Callable[[str], Ask]:
    def make(inside: str) -> Ask:
        if inside:
            raise TaskError(f"the reward {name} takes nothing in brackets, and ({inside}) was given")
        return ask

    return make


def _math(inside: str) -> Ask:
    require_math()
    warn_where_open()
    return _plain(math, "math")(inside)


def _regex(inside: str) -> Ask:
    try:
        pattern = re.compile(inside, re.DOTALL)
    except re.error as error:
        raise TaskError(f"the reward regex({inside}) is no regular expression: {error}") from None
    if not inside:
        raise TaskError("the reward regex needs a pattern: regex(PATTERN)")

    async def ask(said: Completion) -> RewardResult:
        right = pattern.search(said.whole) is not None
        return RewardResult(float(right), said.answer or None, "" if right else f"{inside!r} does not match")

    return ask


def _first_error(inside: str) -> Ask:
    from rolltree.task.data.first_error import first_error  # which is made of what stands here

    return _plain(first_error, "first_error")(inside)


def _no_number(items: Sequence[Item]) -> tuple[Item, str] | None:
    odd = next((item for item in items if last_number(str(item.answer)) is None), None)
    return None if odd is None else (odd, f"the answer {odd.answer!r} is no number; {_WAY}")


def _no_math(items: Sequence[Item]) -> tuple[Item, str] | None:
    odd = awaited(unreadable(str(item.answer) for item in items))
    if odd is None:
        return None
    first = next(item for item in items if str(item.answer) == odd)
    return first, f"the answer {first.answer!r} is no mathematical expression that math-verify reads; {_WAY}"


def _no_error(items: Sequence[Item]) -> tuple[Item, str] | None:
    from rolltree.task.data.first_error import read_row  # which is made of what stands here

    for item in items:
        try:
            read_row(item)
        except TaskError as error:
            return item, str(error)
    return None


BUILTINS: Mapping[str, Builtin] = {
    "exact": Builtin("the answer is the reference, but for blanks around it", _plain(exact, "exact")),
    "contains": Builtin("the reference stands in the answer", _plain(contains, "contains")),
    "number": Builtin(
        "the last number of the answer equals the reference", _plain(number, "number"), unread=_no_number
    ),
    "math": Builtin("math-verify finds answer and reference equal", _math, parts=("parses",), unread=_no_math),
    "format": Builtin("one block of think tags and then an answer", _plain(shape, "format"), needs_answer=False),
    "first_error": Builtin("the first wrong step was found; for judges (FAPO)", _first_error, unread=_no_error),
    "regex": Builtin("regex(PATTERN) is found in the whole text", _regex, needs_answer=False),
}
