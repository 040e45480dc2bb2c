"""One answer for a tree: what a search with a frozen policy is for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from rolltree.generate.hand import Hand
from rolltree.tree import Node


def decide(hand: Hand, leaves: Sequence[Node], how: Literal["vote", "best"]) -> str | None:
    """The answer of a search, written into the tree's notes: most `value` in all, or that of the best leaf.

    Where nobody scored the leaves each is worth 1, and the vote is the majority.
    """
    worth: defaultdict[str, float] = defaultdict(float)
    for leaf in leaves:
        answer = leaf.notes.get("answer")
        if answer is not None:
            value = leaf.scores.get("value", 1.0)
            worth[str(answer)] = max(worth[str(answer)], value) if how == "best" else worth[str(answer)] + value
    if not worth:
        hand.event("note", None, "no leaf has an answer to choose")
        return None
    answer = max(worth, key=lambda a: worth[a])
    share = worth[answer] / sum(worth.values())
    hand.tree.notes["answer"] = answer
    hand.event("note", None, f"the answer by {how} is {answer!r}", share=share, answers=len(worth))
    return answer
