"""Step labels by Monte Carlo continuation (Math-Shepherd, arXiv 2312.08935; OmegaPRM, arXiv 2406.06592).

A rollout is cut at its step ends, and from each of them other rollouts are played. A step's value is the share of
these that end right; the first step from which none does is the first error. With `search="binary"` the first error is
looked for by bisection, which assumes that nothing recovers once no continuation is right, and steps not looked at stay
without a value.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import continued, play
from rolltree.tree import Node, Tree
from rolltree.tree.steps import FIRST_ERROR, STEP_VALUE, solved


@dataclass(frozen=True, slots=True)
class StepLabels:
    """Plays `rollouts`, cuts them at `delimiter`, and values every step end by `samples` continuations."""

    rollouts: int = 4
    samples: int = 8
    delimiter: str = ","
    search: Literal["each", "binary"] = "each"
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Rollouts first, then their step ends side by side."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.rollouts):
                group.create_task(play(hand, tree.root))
        leaves = finished(tree)
        for leaf in leaves:
            await self.label(hand, leaf)

    async def label(self, hand: Hand, leaf: Node) -> None:
        """Value the ends of a leaf's steps, and name the first error; None = it has none that was found."""
        ends = [hand.place(leaf, at) for at in step_ends(hand, leaf, self.delimiter)]
        found: dict[int, float | None] = {}
        if self.search == "each":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.value(hand, end)) for end in ends]
            found = {i: task.result() for i, task in enumerate(tasks)}
            wrong = [i for i, value in found.items() if value == 0.0]
        else:
            low, high, wrong = 0, len(ends), list[int]()
            while low < high:
                middle = (low + high) // 2
                found[middle] = await self.value(hand, ends[middle])
                if found[middle] == 0.0:
                    wrong, high = [middle], middle
                else:
                    low = middle + 1
        right = solved(leaf)
        leaf.scores[STEP_VALUE] = float(right)
        # What ends right has no error, whatever so few continuations say.
        leaf.notes[FIRST_ERROR] = None if right else min(wrong, default=len(ends))

    async def value(self, hand: Hand, end: Node) -> float | None:
        """The share of right continuations; None where none was finished."""
        if STEP_VALUE in end.scores:
            return end.scores[STEP_VALUE]
        ended = await continued(hand, end, self.samples)
        if not ended:
            return None
        here = len(hand.tree.prefix(end))
        for leaf in ended:
            # Siblings are then steps, not a step and the whole rest of a rollout.
            first = next((at for at in step_ends(hand, leaf, self.delimiter) if at > here), None)
            if first is not None:
                hand.place(leaf, first)
        end.scores[STEP_VALUE] = float(np.mean([solved(leaf) for leaf in ended]))
        hand.event("note", end, "valued by continuations", value=end.scores[STEP_VALUE], samples=len(ended))
        return end.scores[STEP_VALUE]


def step_ends(hand: Hand, leaf: Node, delimiter: str) -> list[int]:
    """Positions on a leaf's path behind each delimiter, but for one at the very end; without one, ends of turns."""
    path = hand.tree.path(leaf)
    start = sum(len(n) for n in path if n.role == "prompt" and n.parent is None)
    out, at = list[int](), 0
    for node in path:
        for action in node.actions:
            at += 1
            if delimiter and at > start and node.role == "policy" and delimiter in hand.codec.decode([int(action)]):
                out.append(at)
    return [end for end in out if end < at]
