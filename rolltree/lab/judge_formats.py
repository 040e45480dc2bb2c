"""The same questions in other forms: yes or no, open, and about evidence that is another item's (after S151, UNIVERSE).

A judge that was only asked about right answers says yes to anything, so spoiled ones are asked about as often. One that
reads what it judges falls to chance where the question is exchanged for another item's; one that does not was judging
something else. An open question is answered by the judge's model itself, with nothing to choose from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Entry, Judge, Opinion, Question
from rolltree.generate.judge.votes import winner
from rolltree.generate.turns import play
from rolltree.metrics.rate import Rate, wilson
from rolltree.tree.steps import solved


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
