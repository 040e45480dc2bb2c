"""The nodes of a search: a tree by their parents, a graph by their references.

A node's parent is where it was made and where its result is told. Its references are other nodes that were read to
make it: they are context only, and nothing is ever told to them. What a node stands for (an answer, a step, a program)
is its `payload`, which nothing here looks into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

P = TypeVar("P")
TRIED = "tried"
"""Key in a node's notes: whether what it proposes was tried."""


@dataclass(slots=True, eq=False)
class SearchNode(Generic[P]):
    """One node; `visits` and `total` are the backup's, `pending` and `making` the loop's."""

    id: int
    parent: SearchNode[P] | None
    payload: P
    operator: str = ""
    """What made it; "" = the root."""
    references: tuple[SearchNode[P], ...] = ()
    """Nodes that were read to make it, beside its parent."""
    value: float | None = None
    """Its own score; None = it has none: it failed, or nobody scored it."""
    prior: float = 0.0
    """What was thought of it before it was tried."""
    closed: bool = False
    """Whether nothing may be made from it any more."""
    depth: int = 0
    children: list[SearchNode[P]] = field(default_factory=list["SearchNode[P]"])
    visits: float = 0.0
    """How many results were told it, its own included."""
    total: float = 0.0
    """Their sum."""
    pending: int = 0
    """Results under way here or below: the reservations that keep concurrent workers apart."""
    making: int = 0
    """Children under way right here."""
    top: SearchNode[P] | None = None
    """The ancestor right below the root; None = it is that itself, or the root."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """What rules remember of it."""

    @property
    def mean(self) -> float:
        """Mean of the results told it; 0 before the first."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def branch(self) -> SearchNode[P]:
        """The ancestor right below the root, or the node itself."""
        return self if self.top is None else self.top

    def path(self) -> list[SearchNode[P]]:
        """From the root to the node."""
        nodes: list[SearchNode[P]] = [self]
        node = self.parent
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def below(self) -> Iterator[SearchNode[P]]:
        """The node and everything below it, depth first, children in order of creation."""
        stack: list[SearchNode[P]] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class Move(Generic[P]):
    """Something to be made: from which node, by which operator, with which nodes in sight."""

    node: SearchNode[P]
    operator: str = ""
    references: tuple[SearchNode[P], ...] = ()
    ways: int = 1
    """How many children; 0 = the node is given up."""
    by: str = ""
    """Who makes it, where several may."""


@dataclass(frozen=True, slots=True)
class Made(Generic[P]):
    """What a move gave: one new node, or, with `here`, the result of the very node it was made at."""

    payload: P
    value: float | None = None
    prior: float = 0.0
    closed: bool = False
    cost: int = 0
    """Tokens, or whatever the search counts."""
    here: bool = False
    """Whether this is what came of trying the node itself: one that stood there with a prior only."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


class SearchGraph(Generic[P]):
    """All nodes of one search, in order of creation."""

    def __init__(self, payload: P, value: float | None = None) -> None:
        self.root: SearchNode[P] = SearchNode(0, None, payload, value=value)
        self.nodes: list[SearchNode[P]] = [self.root]
        self.spent = 0
        """Cost of all that was made."""

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[SearchNode[P]]:
        return iter(self.nodes)

    def add(self, move: Move[P], made: Made[P]) -> SearchNode[P]:
        """The node that a move made, or the one that it tried."""
        self.spent += made.cost
        if made.here:
            tried = move.node
            tried.payload, tried.value, tried.closed = made.payload, made.value, tried.closed or made.closed
            tried.notes |= made.notes
            return tried
        node = SearchNode(
            len(self.nodes), move.node, made.payload, move.operator, move.references, made.value, made.prior,
            made.closed, move.node.depth + 1, top=None if move.node.parent is None else move.node.branch,
            notes=dict(made.notes),
        )  # fmt: skip
        move.node.children.append(node)
        self.nodes.append(node)
        return node

    def reserve(self, move: Move[P]) -> None:
        """Count what is under way, at the node and all above it."""
        move.node.making += move.ways
        for node in move.node.path():
            node.pending += move.ways

    def release(self, move: Move[P]) -> None:
        """What was under way has ended, whatever came of it."""
        move.node.making -= move.ways
        for node in move.node.path():
            node.pending -= move.ways

    def best(self, nodes: Sequence[SearchNode[P]] | None = None) -> SearchNode[P] | None:
        """The node with the largest value, the earliest of equals; None where none has one."""
        scored = [n for n in (self.nodes if nodes is None else nodes) if n.value is not None]
        return max(scored, key=_value, default=None)

    def ranked(self, most: int | None = None, per_branch: int | None = None) -> list[SearchNode[P]]:
        """Nodes with a value, best first, the earliest of equals first; at most so many in all and of a branch."""
        out: list[SearchNode[P]] = []
        taken: dict[int, int] = {}
        for node in sorted((n for n in self.nodes if n.value is not None and n.parent), key=lambda n: -_value(n)):
            if most is not None and len(out) >= most:
                break
            branch = node.branch.id
            if per_branch is None or taken.get(branch, 0) < per_branch:
                taken[branch] = taken.get(branch, 0) + 1
                out.append(node)
        return out

    def branches(self) -> list[SearchNode[P]]:
        """The nodes right below the root."""
        return self.root.children


def _value(node: SearchNode[Any]) -> float:
    return -float("inf") if node.value is None else node.value
