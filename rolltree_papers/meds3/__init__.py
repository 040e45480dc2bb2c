"""MedS³: small language models with self-evolved slow thinking (arXiv 2501.12051)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.search.attempts import OperatorTexts, attempt
from rolltree.generate.search.backup import Backup, Blend
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.search.select import UCT, ComposedMove, Descend
from rolltree.generate.search.steps import finished, merged
from rolltree.generate.turns import continued, play, stretch
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree
from rolltree.tree.steps import STEP_VALUE, solved

# MedS³'s search: steps valued by direct answers, of which there are fewer the deeper one is (arXiv 2501.12051).
#
# A node ends a step (Reason) or an answer (Finish). Where the values say that a node is as good as solved it is
# finished at once; a wrong answer is shown to the policy, which writes another one (Reflect).

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


@dataclass(frozen=True, slots=True)
class MedS3:
    """Trees of Reason, Finish and Reflect whose right paths and step values are data for the next policy and a PRM.

    `rolltree solve meds3 --items-from train --out runs/meds3` grows them, and `rolltree labels` makes rows of them. It
    asks the verifier while it searches, so it makes data and is no way to answer. Reconstructed: the policy reasons or
    finishes by what it writes, where the paper's names its action first; a direct answer is a rollout of the same
    policy (the paper asks for the answer alone); an answer of several steps is one node, so the cap on nodes stays (the
    released cap grows with it); new nodes are valued at once, so unvisited ones need no value; the text that asks for a
    revision is ours. Left out: training the policy and the PRM.
    """

    card: ClassVar[Card] = Card(
        "meds3", "MedS³ (slow thinking of small models)", "2501.12051", 2025,
        "+2 points over prior open models on 11 medical sets by self-evolved search, about 13 with PRM selection",
        ("generate", "filter"), "step_labels",
        Evidence("rank correlation of step values with exact ones", "shares of right independent rollouts, same tokens",
                 "higher", 0.05, seeds=5, check="rolltree_papers.meds3.study:values"),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    ways: int = 3
    """Steps tried at a node."""
    nodes: int = 60
    """Most nodes of the search."""
    right: int = 4
    """Right answers that end it."""
    samples: int = 20
    """Direct answers from the root; ⌊samples/(depth + 1)⌋ from a node."""
    least: int = 5
    """Fewest direct answers from a node."""
    sure: float = 0.9
    """Value from which a node is finished at once."""
    exploration: float = 2.0
    """c of UCT."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing. In an environment a step is a turn."""
    reflect: str = "{prompt}"
    """What is asked behind a wrong answer; it may name {prompt} and {answer}. "" = nothing is revised."""
    backup: Literal["comp", "children"] = "comp"
    """Half way from the old value to the weighted mean of the children ("comp"), or all the way."""

    def build(self) -> Parts:
        """The search, with group credit for those who train on its leaves."""
        shares = {"comp": 0.5, "children": 1.0}
        if self.backup not in shares:
            raise RecipeError(f"meds3: backup={self.backup!r} is none of {', '.join(shares)}")
        for name in ("ways", "nodes", "right", "least"):
            if getattr(self, name) < 1:
                raise RecipeError(f"meds3: {name}={getattr(self, name)} grows nothing; give 1 or more")
        return search_parts(
            "meds3",
            SlowThinking(
                self.ways, self.nodes, self.right, self.samples, self.least, self.sure, self.exploration, self.step,
                self.delimiter, self.reflect, Blend(shares[self.backup]),
            ),
        )  # fmt: skip
