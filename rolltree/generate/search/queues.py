"""Where to work next, over all nodes at once: best first, depth first, the best few, and a switch between two rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rolltree.generate.search.graph import SearchNode
from rolltree.generate.search.loop import Moment
from rolltree.generate.search.select import ChildScore, Descend, Room, ScheduleRamp, Select

Priority = Callable[[SearchNode[Any]], float]
"""How promising a node is by itself."""


def own_value(node: SearchNode[Any]) -> float:
    """A node's own score; without one it comes last."""
    return -float("inf") if node.value is None else node.value


@dataclass(frozen=True, slots=True)
class BestFirst:
    """A priority queue over all nodes with room; the earliest of equals comes first."""

    room: Room
    priority: Priority = own_value

    def __call__(self, moment: Moment[Any]) -> SearchNode[Any] | None:
        """The node in front."""
        free = sorted((n for n in moment.graph if self.room(n) > 0), key=lambda n: -self.priority(n))
        return free[0] if free else None


@dataclass(frozen=True, slots=True)
class Stack:
    """Depth first: a node with room before its children, of children the most promising first, then back up.

    A child is given up where `go_on` says so (below a threshold, not better than its parent).
    """

    room: Room
    priority: Priority = own_value
    go_on: Callable[[SearchNode[Any]], bool] = lambda node: True

    def __call__(self, moment: Moment[Any]) -> SearchNode[Any] | None:
        """The node on top of the stack."""
        return self._below(moment.graph.root)

    def _below(self, node: SearchNode[Any]) -> SearchNode[Any] | None:
        if not self.go_on(node):
            return None
        if self.room(node) > 0:
            return node
        for child in sorted(node.children, key=lambda n: -self.priority(n)):
            found = self._below(child)
            if found is not None:
                return found
        return None


@dataclass(frozen=True, slots=True)
class TopK:
    """One of the k best nodes, at most so many of a branch, with weight 1/rank; where it is full, a descent below it.

    `late` are k and the bound per branch from `turn` on (a share of the budget).
    """

    descent: Descend
    k: int = 5
    per_branch: int | None = 3
    late: tuple[int, int | None] = (3, 2)
    turn: float = 0.7

    def __call__(self, moment: Moment[Any]) -> SearchNode[Any] | None:
        """The node."""
        k, each = (self.k, self.per_branch) if moment.progress < self.turn else self.late
        ranked = moment.graph.ranked(k, each)
        weights = [1 / rank for rank in range(1, len(ranked) + 1)]
        while ranked:
            share = float(moment.rng.random()) * sum(weights)
            i = 0
            while i < len(ranked) - 1 and share >= weights[i]:
                share -= weights[i]
                i += 1
            node = ranked.pop(i)
            weights.pop(i)
            found = self.descent.below(node, moment)
            if found is not None:
                found.notes["picked"] = True
                return found
        return None


@dataclass(frozen=True, slots=True)
class Switch:
    """With probability w (a ramp over the budget) the first rule, else the second; where one is empty, the other."""

    first: Select
    second: Select
    weight: ScheduleRamp

    def __call__(self, moment: Moment[Any]) -> SearchNode[Any] | None:
        """The node."""
        early = float(moment.rng.random()) < self.weight.at(moment.progress)
        rules = (self.first, self.second) if early else (self.second, self.first)
        for rule in rules:
            found = rule(moment)
            if found is not None:
                return found
        return None


def flattest(room: Room, score: ChildScore) -> Select:
    """The node with room whose score is largest over the whole tree: I-MCTS's released argmax, which is no descent."""

    def choose(moment: Moment[Any]) -> SearchNode[Any] | None:
        free = [n for n in moment.graph if room(n) > 0]
        below = [n for n in free if n.parent is not None]
        if moment.graph.root in free:
            return moment.graph.root
        return max(below, key=lambda n: score(n.parent or n, n, moment), default=None)

    return choose
