"""Where to work next, from the root down: UCT with schedules and priors, behind one descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rolltree.generate.search.backup import Backup, no_backup
from rolltree.generate.search.graph import TRIED, Move, SearchNode
from rolltree.generate.search.loop import Moment

Room = Callable[[SearchNode[Any]], int]
"""How many more children a node may get now; those under way count as made."""


class Select(Protocol):
    """Chooses one node to work at."""

    def __call__(self, moment: Moment[Any]) -> SearchNode[Any] | None:
        """The node; None = none is free."""
        ...


class ChildScore(Protocol):
    """How much a child is worth going to."""

    def __call__(self, parent: SearchNode[Any], child: SearchNode[Any], moment: Moment[Any]) -> float:
        """The larger, the sooner."""
        ...


def up_to(ways: int, depth: int | None = None) -> Room:
    """So many children of every node that is not closed, down to a depth."""

    def room(node: SearchNode[Any]) -> int:
        if node.closed or (depth is not None and node.depth >= depth):
            return 0
        return ways - len(node.children) - node.making

    return room


def once(ways: int, depth: int | None = None) -> Room:
    """All children at once, in one move: a node that has some, or is being expanded, has no room."""

    def room(node: SearchNode[Any]) -> int:
        over = node.closed or bool(node.children) or node.making > 0 or (depth is not None and node.depth >= depth)
        return 0 if over else ways

    return room


def untried(node: SearchNode[Any]) -> int:
    """The one try of a node that was only proposed."""
    return 0 if node.closed or node.making or node.notes.get(TRIED) else 1


@dataclass(frozen=True, slots=True)
class ScheduleRamp:
    """A number that goes from `first` to `last` as a line between two shares of the budget, and is flat outside."""

    first: float
    last: float
    begin: float = 0.0
    end: float = 1.0

    def at(self, progress: float) -> float:
        """The number at a share of the budget."""
        if self.end <= self.begin:
            return self.first if progress < self.begin else self.last
        share = min(max((progress - self.begin) / (self.end - self.begin), 0.0), 1.0)
        return self.first + share * (self.last - self.first)


@dataclass(frozen=True, slots=True)
class UCT:
    """Mean + c·√(ln N_parent / n), with what is under way counted in n (virtual loss).

    `prior` blends a value from before any result: w·v + (1 − w)·mean with w = prior / (n + prior), as I-MCTS does
    (arXiv 2502.14693); 0 = no prior. A child without a result has n = `unvisited`; 0 = it comes before all others.
    """

    c: float | ScheduleRamp = 1.414
    prior: float = 0.0
    unvisited: float = 0.0
    lost: float = 0.0
    """What each result under way counts as until it is there: the worst a result can be."""

    def __call__(self, parent: SearchNode[Any], child: SearchNode[Any], moment: Moment[Any]) -> float:
        """Of one child."""
        n = child.visits + child.pending
        mean = (child.total + self.lost * child.pending) / n if n else 0.0
        weight = self.prior / (n + self.prior) if self.prior else 0.0
        value = weight * child.prior + (1 - weight) * mean
        c = self.c.at(moment.progress) if isinstance(self.c, ScheduleRamp) else self.c
        seen = n or self.unvisited
        if not seen:
            return math.inf
        return value + c * math.sqrt(math.log(max(parent.visits + parent.pending, 1.0)) / seen)


@dataclass(frozen=True, slots=True)
class Descend:
    """From the root to the child with the largest score, until a node has room; where a way down is full, the next."""

    room: Room
    score: ChildScore = field(default_factory=UCT)

    def __call__(self, moment: Moment[Any]) -> SearchNode[Any] | None:
        """The node."""
        return self.below(moment.graph.root, moment)

    def below(self, node: SearchNode[Any], moment: Moment[Any]) -> SearchNode[Any] | None:
        """The same from another node down."""
        if self.room(node) > 0:
            return node
        for child in ordered(node.children, node, moment, self.score):
            found = self.below(child, moment)
            if found is not None:
                return found
        return None


def ordered(
    children: Sequence[SearchNode[Any]], parent: SearchNode[Any], moment: Moment[Any], score: ChildScore
) -> list[SearchNode[Any]]:
    """Children by score, the earliest of equals first."""
    return sorted(children, key=lambda child: -score(parent, child, moment))


# Which operator is applied at a node that was selected, and with which other nodes in sight.


class Operate(Protocol):
    """Chooses the operator at a node."""

    def __call__(self, node: SearchNode[Any], moment: Moment[Any]) -> Move[Any]:
        """What is to be made there."""
        ...


def only(operator: str, ways: int = 1) -> Operate:
    """The same operator everywhere."""
    return lambda node, moment: Move(node, operator, ways=ways)


@dataclass(frozen=True, slots=True)
class ComposedMove:
    """A plan of three parts, one move a turn."""

    select: Select
    operate: Operate
    backup: Backup = no_backup

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """As of `SearchPlan`."""
        node = self.select(moment)
        return [] if node is None else [self.operate(node, moment)]
