"""When a search stands still: nothing new was better for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolltree.generate.search.graph import SearchGraph, SearchNode


def branch_stagnant(graph: SearchGraph[Any], node: SearchNode[Any], window: int) -> bool:
    """Whether none of a branch's last `window` scored nodes reached the best from before them."""
    top = node.branch
    values = _values([n for n in graph if n.branch is top])
    return len(values) > window and max(values[-window:]) < max(values[:-window])


def stagnant(graph: SearchGraph[Any], window: int, epsilon: float = 1e-4) -> bool:
    """Whether none of the last `window` scored nodes beat the best from before them by more than `epsilon`."""
    values = _values(graph.nodes)
    return len(values) > window and max(values[-window:]) <= max(values[:-window]) + epsilon


def _values(nodes: Sequence[SearchNode[Any]]) -> list[float]:
    return [n.value for n in nodes if n.value is not None and n.parent is not None]
