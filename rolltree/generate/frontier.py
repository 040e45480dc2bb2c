"""Round by round: every live path grows one stretch, then a rule says how many ways each goes on.

The rule sees all live ends of one tree at once, and may return 0 (pruned) for some. This loop is TreePO's, ARPO's,
AEPO's, TreePS-RAG's and ETS's; they differ in the rule, the boundary, the pruner and what fills the missing leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import stretch
from rolltree.tree import Node


@dataclass(frozen=True, slots=True)
class GrowthRound:
    """What a width rule may look at after a round."""

    number: int
    """0 after the first stretch."""
    live: tuple[Node, ...]
    """Ends that may go on, in order of creation."""
    finished: int
    """Leaves that have ended so far, in all rounds."""
    ended_now: int
    """Of those, in the stretch before this round."""
    leaves: int
    """Leaves asked for in all."""


class Widths(Protocol):
    """How many ways each live path goes on: one number per live end. 1 = simply on, 0 = dropped, more = forked."""

    def __call__(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        """Decide; randomness comes from `hand.rng_at(node, ...)`."""
        ...


Review = Callable[[Hand, Sequence[Node]], Awaitable[Sequence[Node]]]
"""Looks at the live ends before widths are chosen, prunes some through the hand, and returns those that stay."""


async def grow_rounds(
    hand: Hand,
    *,
    leaves: int,
    first: int,
    widths: Widths,
    draw: SamplingOptions,
    rounds: int = 1_000,
    want: frozenset[str] = frozenset(),
    review: Review | None = None,
    why: str = "the rule's width",
) -> None:
    """Grow the hand's tree from its root until no path is live; one of so many stretches ends as "depth"."""
    ended = _ended(hand)
    live = await stretch(hand, hand.tree.root, min(first, leaves), want=want, **draw)
    for number in range(rounds - 1):
        now = _ended(hand)
        live = [n for n in live if n.status == "open"]
        if review is not None and live:
            live = [n for n in await review(hand, live) if n.status == "open"]
        if not live:
            return
        chosen = widths(hand, GrowthRound(number, tuple(live), now, now - ended, leaves))
        ended = now
        live = await _onward(hand, live, chosen, draw, want=want, why=why)
    for node in live:
        if node.status == "open":
            hand.close(node, "depth", f"the limit of {rounds} stretches")
            await hand.verify(node)


async def _onward(
    hand: Hand, live: Sequence[Node], widths: Sequence[int], draw: SamplingOptions, *, want: frozenset[str], why: str
) -> list[Node]:
    if len(widths) != len(live):
        raise ValueError(f"a width rule returned {len(widths)} widths for {len(live)} live paths; return one for each")
    for node, width in zip(live, widths, strict=True):
        if width <= 0:
            hand.prune(node, why="the rule gave it no way on")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(stretch(hand, node, width, want=want, why=why if width > 1 else "", **draw))
            for node, width in zip(live, widths, strict=True)
            if width > 0
        ]
    return [end for task in tasks for end in task.result()]


def _ended(hand: Hand) -> int:
    return sum(leaf.status == "done" for leaf in hand.tree.leaves() if leaf.parent is not None)
