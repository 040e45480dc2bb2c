"""Judges by the kind of an item: who is asked about it, and what it asks for itself (TableGPT-R1, arXiv 2512.20312)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from rolltree.errors import unknown
from rolltree.generate.judge.checklist import Checklist
from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question, hand_of
from rolltree.task.data.functions import COLUMNS
from rolltree.task.protocol import Item

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

Kind = Literal["verifiable", "open", "agentic"]
"""Answered once and checked by rules or execution; answered once and graded; answered with tools."""
KIND = "kind"
"""What an item is called by, in its meta or its row of data; without it, tasks with an environment are agentic and
all others verifiable."""


@dataclass(frozen=True, slots=True)
class Routed:
    """What another judge says of items of these kinds; of all other items it says `elsewhere` and asks nobody."""

    judge: Judge
    kinds: tuple[Kind, ...]
    elsewhere: float = 0.0

    @property
    def name(self) -> str:
        """The kinds and the judge."""
        return f"{' or '.join(self.kinds)}: {self.judge.name} else {self.elsewhere:g}"

    @property
    def want(self) -> frozenset[str]:
        """Of the judge."""
        return self.judge.want

    def calls(self, size: int) -> int:
        """Of the judge."""
        return self.judge.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask, or answer at once."""
        mine = hand_of(hand, self)
        if kind_of(mine.item, interactive=mine.task.max_turns > 0) in self.kinds:
            return await self.judge(hand, questions, rng)
        return [[self.elsewhere] * len(question) for question in questions]


@dataclass(frozen=True, slots=True)
class Criteria:
    """A checklist of what the item itself asks for: its field `field`, a text or a list of texts."""

    field: str = "criteria"
    ask: str = "{prompt}\n{entry}\nIs this met: {item}?"
    options: tuple[str, ...] = (" yes", " no")
    credits: tuple[float, ...] = (1.0, 0.0)
    role: str = "judge"
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The field and how it is asked."""
        return f"criteria {self.field} {self.role} {self.ask!r} {self.options} {self.credits}"

    def calls(self, size: int) -> int:
        """One an entry at least; how many an item has is known when it is asked."""
        return size

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask about each of the item's criteria; an item without any is an error, not a bad answer."""
        item = hand_of(hand, self).item
        given = field_of(item, self.field)
        listed = (given,) if isinstance(given, str) else tuple(map(str, cast("Sequence[Any]", given or ())))
        if not listed:
            raise JudgeError(f"item {item.id!r} is open and has no {self.field!r}; give it a text or a list of texts")
        return await Checklist(listed, self.ask, self.options, self.credits, self.role)(hand, questions, rng)


def field_of(item: Item, name: str) -> Any:
    """What an item says under a name: in its meta, else in the other columns of its row of data; None = nothing."""
    columns = cast("Mapping[str, Any]", item.meta.get(COLUMNS, {}))
    return item.meta.get(name, columns.get(name))


def kind_of(item: Item, *, interactive: bool) -> Kind:
    """The kind that an item says it is; without a word, agentic in a task with an environment, verifiable else."""
    said = field_of(item, KIND)
    if said is None:
        return "agentic" if interactive else "verifiable"
    if said not in get_args(Kind):
        raise unknown("kind of item", str(said), get_args(Kind))
    return cast("Kind", said)
