"""What a judge is: it reads entries and says a number for each.

A question is a few entries in the order they are read: one to be graded, two to be compared, the steps of a rollout
among which the first wrong one is looked for. A judge answers a batch of questions, so that what it asks of an engine
is one batch too. A number that is NaN is an abstention; None in place of numbers is a question that stayed unanswered,
because something broke or was not paid. Neither is ever a zero.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.generate.random import lineage, mix
from rolltree.generate.setting import Gone, attempt
from rolltree.generate.signals import features
from rolltree.tree import Node, Tree

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


# What a judge's text says: strict readers, for which a text that says two things says nothing.

NOT_SAID = float("nan")


def number_in(text: str, least: float, most: float) -> float:
    """The one number of a text, as a share of the scale; NaN where there is none, several, or one off the scale."""
    found = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)", text)
    if len(set(found)) != 1:
        return NOT_SAID
    value = float(found[0])
    return (value - least) / (most - least) if least <= value <= most else NOT_SAID


def word_in(text: str, words: tuple[str, ...]) -> int | None:
    """Which one of some words stands in a text; None where none does or several do. Longer words hide shorter ones."""
    order = sorted(words, key=len, reverse=True)
    found = set(re.findall("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in order), text))
    return words.index(found.pop()) if len(found) == 1 else None


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


# What a strategy records: what it wants, and where it has a judge, what that judge reads.


class _Wants(Protocol):
    @property
    def want(self) -> frozenset[str]: ...


class _Judges(Protocol):
    @property
    def judge(self) -> Judge: ...


class Recorded:
    """Of a strategy that names its extras (`want`): the engine's features behind them."""

    __slots__ = ()

    @property
    def needs(self: _Wants) -> frozenset[str]:
        """What is recorded."""
        return features(self.want)


class ReadsJudge(Recorded):
    """Of a strategy with one `judge`: it records what that reads."""

    __slots__ = ()

    @property
    def want(self: _Judges) -> frozenset[str]:
        """Extras that the judge reads."""
        return self.judge.want


# How a strategy asks a judge: paid from the budget, with a time limit and tries, and what broke counted.


async def ask_judge(
    hand: Hand, judge: Judge, questions: Sequence[Question], about: str, rng: np.random.Generator | None
) -> list[Opinion]:
    """See `Hand.judge`. Its chance belongs to the judge and to what it reads, not to when it is asked."""
    cost = [judge.calls(len(question)) for question in questions]
    paid, calls = 0, 0
    while paid < len(questions) and (not cost[paid] or hand.budget.take("judge_calls", cost[paid])):
        calls += cost[paid]
        paid += 1
    if paid < len(questions):
        hand.event(
            "budget", None, f"{paid} of {len(questions)} questions about {about} could be paid", judge=judge.name
        )
    asked = questions[:paid]
    patience, drawn = hand.setting.patience, rng
    if drawn is None:
        drawn = hand.rng.child("judge", judge.name, _key(asked) if calls else 0).generator()
    state = drawn.bit_generator.state

    async def once() -> list[Opinion]:
        drawn.bit_generator.state = state  # a second try draws what the first one did
        return fitting(judge, asked, await judge(hand, asked, drawn))

    try:
        said = await attempt(f"judging {about}", once, patience, patience.judge_seconds, on_retry=hand.retried(None))
    except Gone as gone:
        hand.event("fail", None, str(gone), error=type(gone.cause).__name__, tries=gone.tries, judge=judge.name,
                   questions=len(asked))  # fmt: skip
        said = [None] * len(asked)
    else:
        if calls:
            hand.event("note", None, f"judged {about}", judge=judge.name, questions=len(asked), calls=calls,
                       abstained=sum(map(abstained, said)), failed=sum(one is None for one in said))  # fmt: skip
    return [*said, *([None] * (len(questions) - paid))]


def _key(questions: Sequence[Question]) -> int:
    """What is read, by its place in the trees."""
    return mix(*(
        name for question in questions for entry in question
        for name in (entry.tree.id, lineage(entry.tree, entry.node), len(entry.tree.prefix(entry.node)))
    ))  # fmt: skip
