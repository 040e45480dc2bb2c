"""I-MCTS's selection (arXiv 2502.14693): values from before any run fade out as results come in.

A node is first only proposed, with a prior; going to it means running it and proposing its children, one after the
other, each with its earlier siblings in sight. The descent is from the root; the released code takes the largest score
over all nodes instead (`flat`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolltree.generate.search.backup import tell
from rolltree.generate.search.graph import TRIED, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment
from rolltree.generate.search.queues import flattest
from rolltree.generate.search.select import UCT, Descend, Select, untried


class Introspective:
    """The plan: a turn runs one proposed node. w = c_v/(n + c_v) with c_v = 0.2; an untried node has n = 0.2; c = 2."""

    def __init__(self, runs: int, *, c: float = 2.0, prior: float = 0.2, flat: bool = False) -> None:
        self.runs = runs
        score = UCT(c, prior=prior, unvisited=0.2)
        self.select: Select = flattest(untried, score) if flat else Descend(untried, score)
        self._begun = 0

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """Run the next node, the root first."""
        node = self.select(moment) if self._begun < self.runs else None
        if node is None:
            return []
        self._begun += 1
        return [Move(node, "run")]

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[SearchNode[Any]]) -> None:
        """A run's value goes to the node and all above it; a failed one counts 0. Proposals tell nothing."""
        for node in nodes:
            if node is move.node:
                node.notes[TRIED] = True
                tell(node, 0.0 if node.value is None else node.value)
