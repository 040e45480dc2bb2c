"""Round by round: every live path grows one stretch, then a rule says how many ways each goes on.

The rule sees all live ends of one tree at once, and may return 0 (pruned) for some. TreePO, ARPO, AEPO, TreePS-RAG and
ETS grow so; they differ in the rule, the boundary, the pruner and what fills the missing leaves. It is a search
(`rolltree.generate.search`) whose turns take a whole layer and tell nothing upwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rolltree.generate.decode import may_fork
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.search.backup import Backup, no_backup
from rolltree.generate.search.graph import Made, Move, SearchGraph
from rolltree.generate.search.loop import Moment, search
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
    """How many ways each live path goes on: one number per live end. 1 = simply on, 0 = dropped, more = forked.

    Where the engine draws nothing (the last step of a denoiser) more than 1 is 1: the branches would be copies.
    """

    def __call__(self, hand: Hand, round: GrowthRound) -> Sequence[int]:
        """Decide; randomness comes from `hand.rng_at(node, ...)`."""
        ...


Review = Callable[[Hand, Sequence[Node]], Awaitable[Sequence[Node]]]
"""Looks at the live ends before widths are chosen, prunes some through the hand, and returns those that stay."""


Draw = Callable[[Hand, Sequence[Node], int], None]
"""Looks at all ends of a stretch, those that have just ended too, and prunes some; told how many ended before it."""


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
    drawn: Draw | None = None,
    why: str = "the rule's width",
) -> None:
    """Grow the hand's tree from its root until no path is live; one of so many stretches ends as "depth"."""
    planned: SamplingOptions = {**draw, "forks": "planned"}
    layers = _Layers(hand, leaves, min(first, leaves), widths, planned, rounds, want, review, drawn, why)
    graph = SearchGraph(hand.tree.root)
    await search(layers, graph, layers.make, turns=rounds, rng=lambda turn: hand.rng.child("layer", turn).generator())
    for node in graph:
        if node.depth == rounds and node.payload.status == "open":
            hand.close(node.payload, "depth", f"the limit of {rounds} stretches")
            await hand.verify(node.payload)


@dataclass
class _Layers:
    """The plan of such a search: a turn takes every live path at once, and nothing is told upwards."""

    hand: Hand
    leaves: int
    first: int
    widths: Widths
    draw: SamplingOptions
    rounds: int
    want: frozenset[str]
    review: Review | None
    drawn: Draw | None
    why: str
    ended: int = 0
    backup: Backup = no_backup

    def moves(self, moment: Moment[Node]) -> Sequence[Move[Node]]:
        """A width for each live path; 0 gives it up."""
        if moment.turn == 0:
            self.ended = _ended(self.hand)
            return [Move(moment.graph.root, "stretch", ways=self.first)]
        live = [n for n in moment.graph if n.depth == moment.turn and not n.closed and n.payload.status == "open"]
        if not live:
            return []
        now = _ended(self.hand)
        ends = tuple(n.payload for n in live)
        chosen = self.widths(self.hand, GrowthRound(moment.turn - 1, ends, now, now - self.ended, self.leaves))
        self.ended = now
        if len(chosen) != len(ends):
            raise ValueError(
                f"a width rule returned {len(chosen)} widths for {len(ends)} live paths; return one for each"
            )
        # A way more than one is asked about; most are not.
        ways = [way if way <= 1 or may_fork(self.hand, end) else 1 for end, way in zip(ends, chosen, strict=True)]
        if single := [end.id for end, way, asked in zip(ends, ways, chosen, strict=True) if way < asked]:
            self.hand.event("note", None, "nothing is drawn there, so these paths go on once", nodes=single)
        return [Move(n, "stretch", ways=max(way, 0)) for n, way in zip(live, ways, strict=True)]

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]]:
        """Stretch every path as often as it was told; then look at what is live."""
        for move in moves:
            if not move.ways and move.node.parent is not None:
                self.hand.prune(move.node.payload, why="the rule gave it no way on")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._stretched(move)) for move in moves]
        grown = [task.result() for task in tasks]
        if self.drawn is not None:
            self.drawn(self.hand, [n for ends in grown for n in ends if n.status in ("open", "done")], self.ended)
        live: Sequence[Node] = [n for ends in grown for n in ends if n.status == "open"]
        if self.review is not None and live and moves[0].node.depth < self.rounds - 1:
            live = await self.review(self.hand, live)
        stay = {n.id for n in live}
        return [[Made(n, n.scores.get("reward"), closed=n.id not in stay) for n in ends] for ends in grown]

    async def _stretched(self, move: Move[Node]) -> list[Node]:
        if not move.ways:
            return []
        why = self.why if move.ways > 1 and move.node.parent is not None else ""
        return await stretch(self.hand, move.node.payload, move.ways, want=self.want, why=why, **self.draw)


def _ended(hand: Hand) -> int:
    return sum(leaf.status == "done" for leaf in hand.tree.leaves() if leaf.parent is not None)
