"""What a result tells the nodes above it. Only along parents: references are never told anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rolltree.generate.search.graph import Move, P, SearchGraph, SearchNode


class Backup(Protocol):
    """Called once for every move that has ended, with what it made (perhaps nothing)."""

    def __call__(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """Write down what the new nodes tell."""
        ...


def tell(node: SearchNode[P], reward: float, visits: float = 1.0) -> None:
    """Add a result to a node and everything above it."""
    for above in node.path():
        above.visits += visits
        above.total += reward


def no_backup(graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
    """Nothing is told: the search reads its nodes' own values."""


@dataclass(frozen=True, slots=True)
class MeanBackup:
    """Every new node's value is one more result of its own and of all above it: nodes hold the mean of their subtree.

    A node without a value counts `failed`. `only_best` tells one result for a move with several ways, its best.
    """

    failed: float = 0.0
    only_best: bool = False

    def __call__(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """As of `Backup`."""
        rewards = [self.failed if node.value is None else node.value for node in nodes]
        if self.only_best and nodes:
            best = max(range(len(nodes)), key=lambda i: rewards[i])
            tell(nodes[best], rewards[best])
            return
        for node, reward in zip(nodes, rewards, strict=True):
            tell(node, reward)


@dataclass(frozen=True, slots=True)
class Blend:
    """Each ancestor's value goes `share` of the way to the mean of its children, weighted by their visits.

    With ½ this is MedS³'s released rule (arXiv 2501.12051): it keeps half of a node's first, noisy estimate for ever.
    With 1 a value is the weighted mean of the children's.
    """

    share: float = 0.5
    failed: float = 0.0

    def __call__(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """As of `Backup`; what `mean` reads is then the blended value."""
        for node in nodes:
            node.visits, node.total = 1.0, self.failed if node.value is None else node.value
        if not nodes:
            return
        for above in reversed(move.node.path()):
            below = [child for child in above.children if child.visits]
            told = sum(child.mean * child.visits for child in below) / sum(child.visits for child in below)
            value = told if not above.visits else (1 - self.share) * above.mean + self.share * told
            above.visits += len(nodes)
            above.total = value * above.visits
