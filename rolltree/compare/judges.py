"""What judges are worth: right answers against copies with one planted error, kind by kind (after S151, RewardBench).

A judge that is only shown clean rollouts looks good whatever it does, so every question has an error in it. Reported
are a pair in both orders (a verdict that does not survive is none), one of four, single grades, and `judge_formats`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from rolltree.compare.trace import LabError
from rolltree.control.hints import solver
from rolltree.control.ledger import Budget, Spent
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.calibration import Calibration, auc, compared
from rolltree.generate.judge.protocol import Entry, Judge, Opinion, Question
from rolltree.generate.judge.votes import winner
from rolltree.generate.runner import open_hand
from rolltree.generate.turns import play
from rolltree.metrics.reward import Rate, wilson
from rolltree.task.protocol import Item, Task
from rolltree.tree.steps import solved

# The same questions in other forms: yes or no, open, and about evidence that is another item's (after S151, UNIVERSE).
#
# A judge that was only asked about right answers says yes to anything, so spoiled ones are asked about as often. One
# that reads what it judges falls to chance where the question is exchanged for another item's; one that does not was
# judging something else. An open question is answered by the judge's model itself, with nothing to choose from.


@dataclass(frozen=True, slots=True)
class JudgeFormats:
    """One judge in several forms; shares with their intervals."""

    yes_right: Rate
    """Of right answers alone, those it grades at one half or more."""
    yes_spoiled: Rate
    """Of spoiled ones."""
    exchanged: Rate
    """Right answers named in both orders under another item's question: a coin names 1/4, who reads the question about
    as few; much more is known by something else than the question."""
    open: Rate
    """Open questions that the judge's model answers right, greedily."""

    @property
    def yes_bias(self) -> float:
        """How much more than half of its answers are yes, where half should be; 0 = none."""
        return (self.yes_right.value + self.yes_spoiled.value) / 2 - 0.5


async def judge_formats(
    judge: Judge, hands: Sequence[Hand], answers: Sequence[str], spoiled: Mapping[int, str]
) -> JudgeFormats:
    """Ask about right answers and a spoiled copy of each, in every form. `hands` hold the items' trees, in order."""
    yes: tuple[list[bool], list[bool]] = ([], [])
    named: list[bool] = []
    for i, text in spoiled.items():
        good, bad = entry(hands[i], answers[i]), entry(hands[i], text)
        for said, opinion in zip(yes, await hands[i].judge(judge, [(good,), (bad,)], about="yes or no"), strict=True):
            if opinion is not None and not np.isnan(opinion[0]):
                said.append(opinion[0] >= 0.5)
        other = hands[(i + 1) % len(hands)]
        right, wrong = entry(other, answers[i]), entry(other, text)
        asked: list[Question] = [(right, wrong), (wrong, right)]
        named.append(_both(await other.judge(judge, asked, about="another item's question")))
    written = await asyncio.gather(*(_written(hands[i]) for i in spoiled))
    return JudgeFormats(_rate(yes[0]), _rate(yes[1]), _rate(named), _rate(written))


def _both(said: Sequence[Opinion]) -> bool:
    one, two = said
    return one is not None and two is not None and winner(one) == 0 and winner(two) == 1


async def _written(hand: Hand) -> bool:
    leaf = await play(hand, hand.tree.root, temperature=0.0)
    return "reward" in leaf.scores and solved(leaf)


def _rate(flags: Sequence[bool]) -> Rate:
    return wilson(float(np.mean(flags)) if flags else 0.0, len(flags))


def entry(hand: Hand, text: str) -> Entry:
    """A text as a node of the item's tree, so that what is said about it points somewhere."""
    for node in hand.tree.children(hand.tree.root):
        if node.notes.get("text") == text:
            return Entry(hand.tree, node, text)
    node = hand.tree.extend(hand.tree.root, hand.codec.encode(text), role="hint", status="done", finish="stop")
    node.notes["text"] = text
    return Entry(hand.tree, node, text)


Plant = Callable[[str, str, str, Random], str]
"""From an answer, another item's answer and the delimiter of steps to a spoiled copy; "" = it cannot be planted
here."""


def _digit(text: str, other: str, delimiter: str, rng: Random) -> str:
    places = [i for i, c in enumerate(text) if c.isdigit()]
    return _changed(text, rng.choice(places), rng) if places else ""


def _result(text: str, other: str, delimiter: str, rng: Random) -> str:
    found = list(re.finditer(r"\d", text))
    return _changed(text, found[-1].start(), rng) if found else ""


def _swap(text: str, other: str, delimiter: str, rng: Random) -> str:
    steps = text.split(delimiter)
    if len(steps) < 2:
        return ""
    i = rng.randrange(len(steps) - 1)
    steps[i], steps[i + 1] = steps[i + 1], steps[i]
    return delimiter.join(steps)


def _drop(text: str, other: str, delimiter: str, rng: Random) -> str:
    steps = text.split(delimiter)
    if len(steps) < 2:
        return ""
    del steps[rng.randrange(len(steps) - 1)]
    return delimiter.join(steps)


def _other(text: str, other: str, delimiter: str, rng: Random) -> str:
    return other


def _changed(text: str, at: int, rng: Random) -> str:
    digit = rng.choice([d for d in "0123456789" if d != text[at]])
    return text[:at] + digit + text[at + 1 :]


PLANTED: Mapping[str, Plant] = {"digit": _digit, "result": _result, "swap": _swap, "drop": _drop, "other": _other}
"""Kinds of errors: any digit changed, the last one, two steps exchanged, a step left out, another item's answer."""


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """A judge on one kind of error."""

    kind: str
    pairs: Calibration
    right: Rate
    """Of all pairs, verdicts that name the right one: what abstentions cost is in it."""
    graded: float
    """Chance that the right answer alone is graded above a spoiled one alone (area under the curve)."""


@dataclass(frozen=True, slots=True)
class JudgeTable:
    """All kinds, and one of four over all of them."""

    judge: str
    rows: tuple[JudgeRow, ...]
    four: Rate
    """Share of the right answers named among four, read once in a drawn order; chance is one quarter."""
    formats: JudgeFormats
    """Yes or no, open, and under another item's question; over the first error that could be planted in each answer."""
    spent: Spent


async def judge_table(
    judge: Judge, engine: Engine, task: Task, items: Sequence[Item], *, seed: int = 0, delimiter: str = ","
) -> JudgeTable:
    """Plant errors in right answers to the items, and ask the judge."""
    solve = solver(task)
    if solve is None:
        raise LabError(f"answers of the task {task.name!r} are dialogues; choose a task that is answered in one go")
    budget = Budget()
    hand = open_hand(engine, task, seed=seed, budget=budget)
    answers = [solve(item) for item in items]
    hands = [hand.on(hand.plant(item)) for item in items]
    spoiled: dict[str, dict[int, str]] = {}
    for kind, plant in PLANTED.items():
        rng = Random(f"{seed}/{kind}")
        for i, item in enumerate(items):
            text = plant(answers[i], answers[(i + 1) % len(items)], delimiter, rng)
            if text and text != answers[i] and await _worse(task, item, text, answers[i]):
                spoiled.setdefault(kind, {})[i] = text
    if not spoiled:
        raise LabError(f"no error could be planted in {len(items)} answers of {task.name!r}; give --delimiter, or more")
    rows = [await _row(judge, hands, answers, kind, found) for kind, found in spoiled.items()]
    four = await _four(judge, hands, answers, spoiled, seed)
    one_each = {i: text for found in reversed(spoiled.values()) for i, text in found.items()}
    formats = await judge_formats(judge, hands, answers, dict(sorted(one_each.items())))
    return JudgeTable(judge.name, tuple(rows), four, formats, budget.spent)


async def _worse(task: Task, item: Item, text: str, right: str) -> bool:
    """Whether the verifier measures the difference: the score, or one of its parts."""
    spoiled, good = await task.verify(item, None, text), await task.verify(item, None, right)
    return spoiled.score < good.score or any(spoiled.parts.get(k, v) < v for k, v in good.parts.items())


async def _row(
    judge: Judge, hands: Sequence[Hand], answers: Sequence[str], kind: str, found: Mapping[int, str]
) -> JudgeRow:
    there: list[Opinion] = []
    back: list[Opinion] = []
    grades: list[float] = []
    truth: list[bool] = []
    for i, text in found.items():
        good, bad = entry(hands[i], answers[i]), entry(hands[i], text)
        asked: list[Question] = [(good, bad), (bad, good), (good,), (bad,)]
        one, two, *single = await hands[i].judge(judge, asked, about=f"an answer with a planted {kind}")
        there.append(one)
        back.append(two)
        for opinion, right in zip(single, (True, False), strict=True):
            if opinion is not None and not np.isnan(opinion[0]):
                grades.append(opinion[0])
                truth.append(right)
    pairs = compared(there, back, [0] * len(there))
    named = [a is not None and b is not None and winner(a) == 0 and winner(b) == 1
             for a, b in zip(there, back, strict=True)]  # fmt: skip
    return JudgeRow(kind, pairs, wilson(float(np.mean(named)), len(named)), auc(grades, truth))


async def _four(
    judge: Judge, hands: Sequence[Hand], answers: Sequence[str], spoiled: Mapping[str, Mapping[int, str]], seed: int
) -> Rate:
    named: list[bool] = []
    for i, hand in enumerate(hands):
        wrong = list(dict.fromkeys(found[i] for found in spoiled.values() if i in found))[:3]
        if len(wrong) < 3:
            continue
        texts = [answers[i], *wrong]
        order = Random(f"{seed}/four/{i}").sample(range(4), 4)
        (said,) = await hand.judge(judge, [[entry(hand, texts[k]) for k in order]], about="one of four")
        named.append(said is not None and winner(said) == order.index(0))
    return wilson(float(np.mean(named)) if named else 0.0, len(named))
