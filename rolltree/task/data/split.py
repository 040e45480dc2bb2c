"""Training and held-out questions of finite data: told apart by what they ask, each held-out one used once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from rolltree.task.data.layouts import Question
from rolltree.task.data.source import is_data
from rolltree.task.items import TEST_SHARE, TaskError, digest, fraction, split_of
from rolltree.task.protocol import Split

SHOWN = 3
"""Repeated prompts that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class SplitData:
    """The questions of both splits, and what is to be said of them."""

    train: tuple[Question, ...]
    test: tuple[Question, ...]
    """Distinct."""
    rule: str
    """How they were told apart, in words."""
    notes: tuple[str, ...] = ()

    def of(self, split: Split) -> tuple[Question, ...]:
        """The questions of one split."""
        return self.train if split == "train" else self.test


def share(text: str) -> float | None:
    """A `--holdout` that is a number: the share that is held out; None where it names data."""
    if is_data(text) or Path(text).is_file():
        return None
    try:
        value = float(text)
    except ValueError:
        raise TaskError(f"--holdout {text} is neither a share such as 0.1 nor a file of held-out items") from None
    if not 0 <= value < 1:
        raise TaskError(f"--holdout {text} makes no sense; give a share from 0 to below 1, or a file")
    return value


def divided(
    questions: Sequence[Question], held: float | None, aside: Sequence[Question] | None = None, prefix: str = "row"
) -> SplitData:
    """Questions divided by `held`, or by the ones put `aside` (of a file of their own); `prefix` begins made-up ids.

    Without either, a column `split` decides, and where there is none every eighth prompt by its hash. Whatever decides,
    a prompt is never in both.
    """
    if aside is not None:
        sets = [questions, [replace(q, id=f"held-{q.id}" if q.id else "") for q in aside]]
        rule = f"from {aside[0].where.rpartition(' ')[0].rpartition(' ')[0]}"
    elif held is None and any(q.split is not None for q in questions):
        sets = _parted(questions, lambda q: q.split or split_of(q.content))
        rule = "by the column split"
    elif held is None:
        sets = _parted(questions, lambda q: split_of(q.content))
        rule = f"one in {TEST_SHARE} by the prompt's hash"
    else:
        sets = _parted(questions, lambda q: "test" if fraction(q.content) < held else "train")
        rule = f"a share of {held:g} by the prompt's hash"
    if aside is None and rule.endswith("hash") and held != 0:
        sets = _both(sets)
    train, test = sets
    _apart(train, test)
    notes = (_repeats(train, "all are kept"), _repeats(test, "each is held out once"))
    told = tuple(note for note in notes if note)
    named = _named([*train, *_distinct(test)], prefix)
    return SplitData(named[: len(train)], named[len(train) :], rule, told)


def epochs(questions: Sequence[Question], key: str) -> Iterator[Question]:
    """All questions in a random order, then all in another, without end; the key alone decides the orders."""
    rng = Random(key)
    while True:
        yield from rng.sample(questions, len(questions))


def _parted(questions: Sequence[Question], of: Callable[[Question], str]) -> list[Sequence[Question]]:
    return [[q for q in questions if of(q) == split] for split in ("train", "test")]


def _both(sets: list[Sequence[Question]]) -> list[Sequence[Question]]:
    """A split that chance left empty gets the prompt with the lowest hash, so that small files work."""
    train, test = sets
    prompts = sorted({q.content for q in (*train, *test)}, key=digest)
    if len(prompts) < 2 or (train and test):
        return sets
    moved = prompts[0]
    rest, some = [[q for q in (*train, *test) if (q.content == moved) == same] for same in (False, True)]
    return [rest, some] if not test else [some, rest]


def _apart(train: Sequence[Question], test: Sequence[Question]) -> None:
    seen = {q.content: q for q in train}
    for q in test:
        if q.content in seen:
            raise TaskError(
                f"{q.where} is held out and asks what {seen[q.content].where} asks in training; drop one of them"
            )


def _repeats(questions: Sequence[Question], usage: str) -> str:
    """What is said of prompts that stand more than once."""
    at: defaultdict[str, list[Question]] = defaultdict(list)
    for q in questions:
        at[q.content].append(q)
    again = [qs for qs in at.values() if len(qs) > 1]
    if not again:
        return ""
    places = "; ".join(
        f"{qs[0].where}, {', '.join(q.where.rpartition(' ')[2] for q in qs[1:])}"
        + (" with different answers" if len({q.answer for q in qs}) > 1 else "")
        for qs in again[:SHOWN]
    )
    more = f" and {len(again) - SHOWN} more" if len(again) > SHOWN else ""
    verb = "prompt stands" if len(again) == 1 else "prompts stand"
    return f"{len(again)} {verb} more than once ({places}{more}); {usage}"


def _distinct(questions: Sequence[Question]) -> Sequence[Question]:
    return list({q.content: q for q in reversed(questions)}.values())[::-1]


def _named(questions: Sequence[Question], prefix: str) -> tuple[Question, ...]:
    """Every question with an id of its own; the same id given twice is refused."""
    out: list[Question] = []
    given: dict[str, Question] = {}
    made: defaultdict[str, int] = defaultdict(int)
    for q in questions:
        if q.id:
            if given.setdefault(q.id, q) is not q:
                raise TaskError(f"{q.where} names two items {q.id!r}: {given[q.id].where} has that id; ids must differ")
            out.append(q)
            continue
        name = f"{prefix}-{digest(q.content)}"
        made[name] += 1
        out.append(replace(q, id=name if made[name] == 1 else f"{name}-{made[name]}"))
    return tuple(out)
