"""What a judge is: it reads entries and says a number for each.

A question is a few entries in the order they are read: one to be graded, two to be compared, the steps of a rollout
among which the first wrong one is looked for. A judge answers a batch of questions, so that what it asks of an engine
is one batch too. A number that is NaN is an abstention; None in place of numbers is a question that stayed unanswered,
because something broke or was not paid. Neither is ever a zero.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.tree import Node, Tree

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

T = TypeVar("T")


class JudgeError(RolltreeError, ValueError):
    """A judge that cannot be asked this: names the judge and the way out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something to be judged: a place in a tree, and the text that is read there."""

    tree: Tree
    node: Node
    text: str = ""


Question = Sequence[Entry]
"""Entries in the order they are read."""
Opinion = Sequence[float] | None
"""A number for each entry of a question, NaN where the judge abstains; None = it was not answered."""


@runtime_checkable
class Judge(Protocol):
    """Reads entries, says numbers. What the numbers mean is the judge's: a grade, a share of votes, a probability."""

    @property
    def name(self) -> str:
        """What it is, with everything that could change a verdict: the key of caches and of calibration."""
        ...

    @property
    def want(self) -> frozenset[str]:
        """Extras that it reads off the nodes ("entropy", "hidden"); they must be asked for when these are grown."""
        ...

    def calls(self, size: int) -> int:
        """Judge calls that a question of so many entries costs; 0 = it reads what is recorded anyway."""
        ...

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Answer every question. `hand` asks engines; it is None in a shaper, where nothing can be asked."""
        ...


def entries(hand: Hand, nodes: Sequence[Node], *, texts: bool = True) -> list[Entry]:
    """Nodes of a hand's tree as entries, with what was written up to their ends."""
    return [Entry(hand.tree, node, hand.text(node) if texts else "") for node in nodes]


def hand_of(hand: Hand | None, judge: Judge) -> Hand:
    """The hand of a judge that asks an engine."""
    if hand is None:
        raise JudgeError(
            f"the judge {judge.name!r} asks an engine, which a shaper cannot; let the strategy judge (Judged) and give "
            "the shaper the score that it writes"
        )
    return hand


def at_once(answer: Coroutine[Any, Any, T], what: str) -> T:
    """The result of a judge that only reads what is recorded; one that waits for something is refused."""
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    answer.close()
    raise JudgeError(
        f"{what} waits for an answer, which a shaper cannot; let the strategy judge (Judged) and give the shaper the "
        "score that it writes"
    )


def fitting(judge: Judge, questions: Sequence[Question], said: Sequence[Opinion]) -> list[Opinion]:
    """Opinions that answer these questions, or one sentence about the judge that gave others."""
    if len(said) != len(questions):
        raise JudgeError(f"the judge {judge.name!r} answered {len(said)} of {len(questions)} questions; answer each")
    for question, opinion in zip(questions, said, strict=True):
        if opinion is not None and len(opinion) != len(question):
            raise JudgeError(
                f"the judge {judge.name!r} said {len(opinion)} numbers about {len(question)} entries; say one for each"
            )
    return [None if opinion is None else [float(x) for x in opinion] for opinion in said]


def abstained(opinion: Opinion) -> bool:
    """Whether a judge answered and said nothing: every number is NaN."""
    return opinion is not None and bool(np.isnan(np.asarray(opinion, np.float64)).all())
