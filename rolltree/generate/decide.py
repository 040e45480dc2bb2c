"""What a search makes of a judge's numbers: grades of paths, and one answer for a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import answer_of, tally
from rolltree.generate.judge.protocol import Judge, JudgeError, Question, entries
from rolltree.tree import Node


async def grades(hand: Hand, judge: Judge, nodes: Sequence[Node]) -> list[float]:
    """One number for each node by itself. Where the judge abstained or broke, the lowest of the others', which is
    counted in the event: an unknown path is no promising one. A judge that answers nothing at all fails the tree.
    """
    if not nodes:
        return []
    asked: list[Question] = [[entry] for entry in entries(hand, nodes, texts=judge.calls(1) > 0)]
    said = await hand.judge(judge, asked, about="paths")
    if all(opinion is None for opinion in said):
        raise JudgeError(
            f"the judge {judge.name!r} answered none of {len(nodes)} questions about paths; the tree's events say why"
        )
    values = [float("nan") if opinion is None else opinion[0] for opinion in said]
    known = [value for value in values if not np.isnan(value)]
    if len(known) < len(values):
        hand.event("note", None, "paths without a grade have the lowest", ungraded=len(values) - len(known))
    least = min(known, default=0.0)
    return [least if np.isnan(value) else value for value in values]


def decide(hand: Hand, leaves: Sequence[Node], how: Literal["vote", "best"]) -> str | None:
    """The answer of a search, written into the tree's notes: most `value` in all, or that of the best leaf.

    Where nobody scored the leaves each is worth 1, and the vote is the majority.
    """
    voters = [leaf for leaf in leaves if answer_of(leaf) is not None]
    if not voters:
        hand.event("note", None, "no leaf has an answer to choose")
        return None
    shares = tally(hand.tree, voters, "value", best=how == "best")
    answer = max(shares, key=lambda a: shares[a])
    hand.tree.notes["answer"] = answer
    hand.event("note", None, f"the answer by {how} is {answer!r}", share=shares[answer], answers=len(shares))
    return answer
