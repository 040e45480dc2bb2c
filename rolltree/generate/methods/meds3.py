"""MedS³'s search: steps valued by direct answers, of which there are fewer the deeper one is (arXiv 2501.12051).

A node ends a step (Reason) or an answer (Finish). Where the values say that a node is as good as solved it is finished
at once; a wrong answer is shown to the policy, which writes another one (Reflect).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.generate.decide import decide
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.search.attempts import OperatorTexts, attempt
from rolltree.generate.search.backup import Backup, Blend
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.search.moves import ComposedMove
from rolltree.generate.search.select import UCT, Descend
from rolltree.generate.search.steps import finished, merged
from rolltree.generate.turns import continued, play, stretch
from rolltree.tree import Node, Tree
from rolltree.tree.steps import STEP_VALUE, solved

REASON, FINISH, REFLECT = "reason", "finish", "reflect"
ENDED = "ended"
"""Key in a search node's notes: whether it ends an answer."""


@dataclass(frozen=True, slots=True)
class SlowThinking:
    """Grows one node after the other until there are so many of them, or so many right answers."""

    ways: int = 3
    nodes: int = 60
    """Most nodes of the search; direct answers are none."""
    right: int = 4
    """Right answers that end it, and up to which open paths are finished at its end."""
    samples: int = 20
    """Direct answers from the root; a node at depth d has ⌊samples/(d + 1)⌋ of them."""
    least: int = 5
    """Fewest direct answers from a node."""
    sure: float = 0.9
    """Value from which a node is finished at once."""
    exploration: float = 2.0
    step: int = 16
    delimiter: str = ","
    reflect: str = "{prompt}"
    """What is asked behind a wrong answer, once; "" = nothing."""
    backup: Backup = field(default_factory=Blend)
    needs: frozenset[str] = frozenset()

    def count(self, depth: int) -> int:
        """Direct answers from a node at that depth."""
        return max(self.samples // (depth + 1), self.least)

    def room(self, node: SearchNode[Node]) -> int:
        """All children at once; a wrong answer has one, unless it is a second one itself."""
        if node.closed or node.children or node.making:
            return 0
        return 1 if node.notes.get(ENDED) else self.ways

    def operate(self, node: SearchNode[Node], moment: Moment[Node]) -> Move[Node]:
        """What is made at a node."""
        if node.notes.get(ENDED):
            return Move(node, REFLECT)
        if node.value is not None and node.value >= self.sure:
            return Move(node, FINISH)
        return Move(node, REASON, ways=self.ways)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Search, finish open paths, write down what each step is worth, and let all answers vote."""
        graph, world = SearchGraph(tree.root), _Actions(self, hand)
        await search(
            ComposedMove(Descend(self.room, UCT(self.exploration)), self.operate, self.backup), graph, world.make,
            turns=self.nodes, rng=streams(hand),
            stop=lambda _: len(graph) > self.nodes or right(graph) >= self.right,
        )  # fmt: skip
        for node in graph:
            if node.parent is not None and node.value is not None:
                node.payload.scores[STEP_VALUE] = node.value if node.notes.get(ENDED) else node.mean
        await world.finish(graph)
        decide(hand, finished(tree), "vote")


class _Actions:
    """Reason, Finish and Reflect on a tree."""

    def __init__(self, knobs: SlowThinking, hand: Hand) -> None:
        self.knobs = knobs
        self.hand = hand
        self.asks = OperatorTexts({REFLECT: knobs.reflect})
        self.draw: SamplingOptions = {}
        if not hand.interactive:
            self.draw = {"max_tokens": knobs.step, "stop": (knobs.delimiter,) if knobs.delimiter else ()}

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """What one move gives; None where the budget has ended."""
        move, hand = moves[0], self.hand
        place, numbers = move.node.payload, {"mean": round(move.node.mean, 4), "depth": move.node.depth}
        hand.event("select", place, f"{move.operator} here", **numbers)
        if move.operator == REFLECT:
            again = await attempt(hand, move, self.asks)
            return None if again is None else [[await self.valued(one.payload, move, second=True) for one in again]]
        if move.operator == FINISH:
            leaf = await play(hand, place)
            return None if leaf is place else [[await self.valued(leaf, move)]]
        ends = merged(hand, await stretch(hand, place, move.ways, why="a step", **self.draw))
        return [[await self.valued(end, move) for end in ends]] if ends else None

    async def valued(self, end: Node, move: Move[Node], *, second: bool = False) -> Made[Node]:
        """A new node: an answer is worth whether it is right, a step the share of right direct answers from it."""
        if end.status != "open":
            value = float(solved(end)) if "reward" in end.scores else None
            closed = value is None or value > 0 or second or not self.knobs.reflect
            return Made(end, value, closed=closed, cost=len(end), notes={ENDED: True})
        leaves = await continued(self.hand, end, self.knobs.count(move.node.depth + 1))
        value = float(np.mean([solved(leaf) for leaf in leaves])) if leaves else None
        if value is not None:
            end.scores["node_value"] = value
        return Made(end, value, closed=value is None, cost=len(end) + sum(len(leaf) for leaf in leaves))

    async def finish(self, graph: SearchGraph[Node]) -> None:
        """Play open ends of the search, the best first, until enough answers are right."""
        found = right(graph)
        ends = [n for n in graph if n.parent and not n.children and not n.closed and not n.notes.get(ENDED)]
        for node in sorted(ends, key=lambda n: -n.mean):
            if found >= self.knobs.right:
                return
            leaf = await play(self.hand, node.payload)
            found += "reward" in leaf.scores and solved(leaf)


def right(graph: SearchGraph[Node]) -> int:
    """Right answers among the nodes of a search."""
    return sum(bool(node.notes.get(ENDED)) and node.value == 1.0 for node in graph)
