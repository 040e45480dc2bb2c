"""The loop of every search: choose, reserve, make, release, back up.

Up to `workers` turns are under way at once. A turn is chosen with all nodes reserved that earlier turns work at, and
results are taken in the order in which their turns began. So turn t knows exactly the results of turns up to
t − workers, however fast each of them was: the same seed gives the same search with any engine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol

import numpy as np

from rolltree.generate.search.backup import Backup
from rolltree.generate.search.graph import Made, Move, P, SearchGraph, SearchNode

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

Maker = Callable[[Sequence[Move[P]]], Awaitable[Sequence[Sequence[Made[P]]] | None]]
"""Makes what the moves of one turn ask for: what each of them gave. None = nothing is left to make anything with."""


@dataclass(frozen=True, slots=True)
class Moment(Generic[P]):
    """What a rule may look at when it chooses."""

    graph: SearchGraph[P]
    rng: np.random.Generator
    """The turn's own stream; rules draw from it one after the other."""
    turn: int = 0
    progress: float = 0.0
    """Share of the budget that was spent on results known by now, in [0, 1]."""


class SearchPlan(Protocol[P]):
    """A whole method: where to work next with which operator, and what a result tells."""

    def moves(self, moment: Moment[P]) -> Sequence[Move[P]]:
        """The moves of one turn; none = nothing is free until something under way has ended."""
        ...

    @property
    def backup(self) -> Backup:
        """Tells a result to the nodes above it."""
        ...


async def search(
    plan: SearchPlan[P],
    graph: SearchGraph[P],
    make: Maker[P],
    *,
    turns: int,
    rng: Callable[[int], np.random.Generator],
    workers: int = 1,
    progress: Callable[[int], float] | None = None,
    stop: Callable[[SearchNode[P]], bool] | None = None,
) -> SearchGraph[P]:
    """Run a plan for so many turns, until nothing is free, nothing is left, or a node says `stop`.

    `progress` gives the share of the budget spent from the turns that are over (default: their share of `turns`).
    """
    waiting: deque[tuple[Sequence[Move[P]], asyncio.Task[Sequence[Sequence[Made[P]]] | None]]] = deque()
    begun, over, ended = 0, 0, False
    async with asyncio.TaskGroup() as group:
        while True:
            while not ended and len(waiting) < workers and begun < turns:
                share = over / turns if progress is None else progress(over)
                moves = plan.moves(Moment(graph, rng(begun), begun, min(max(share, 0.0), 1.0)))
                if not moves:
                    break
                for move in moves:
                    graph.reserve(move)
                waiting.append((moves, group.create_task(_made(make, moves))))
                begun += 1
            if not waiting:
                return graph
            moves, task = waiting.popleft()
            results = await task
            over += 1
            for move in moves:
                graph.release(move)
                move.node.closed |= move.ways == 0
            if results is None:
                ended = True
                continue
            for move, made in zip(moves, results, strict=True):
                nodes = [graph.add(move, one) for one in made]
                plan.backup(graph, move, nodes)
                ended |= stop is not None and any(stop(node) for node in nodes)


def streams(hand: Hand) -> Callable[[int], np.random.Generator]:
    """Each turn's own stream of randomness in a search on a hand's tree."""
    return lambda turn: hand.rng.child("search", turn).generator()


async def _made(make: Maker[P], moves: Sequence[Move[P]]) -> Sequence[Sequence[Made[P]]] | None:
    return await make(moves)
