"""CodeTree: strategies, solutions and reflections on one stack, pruned by tests and a critic (arXiv 2411.04329).

The rules know nothing of programs: `rolltree.recipe.codetree` puts answers of a policy behind them, the authors' study
(`studies.search.codetree`) an editor whose chances are known. They follow the released agent mode, step by step; its
breadth-first mode is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

from rolltree.generate.search.graph import TRIED, Made, Move, P, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment
from rolltree.generate.search.queues import Stack
from rolltree.generate.search.select import untried

MOST = 5
"""The critic's best score; the released value of code that passes and is not accepted is 1 + 5/15."""


@dataclass(frozen=True, slots=True)
class CodeTreeRules:
    """Knobs of the search."""

    ways: int = 10
    """W: most strategies, and most reflections on one solution."""
    depth: int = 3
    """D: solutions on one line, the first one included."""
    accept: float = 0.5
    """Least grade by which the critic accepts what passes all visible tests."""
    critic: bool = True
    """Whether the critic scores what fails tests; without it a value is the share of tests passed."""
    prune: bool = True
    """Whether a line is given up where its value falls behind its parent's."""


class Coder(Protocol[P]):
    """Who proposes, writes, tests and reviews. None everywhere = nothing is left to pay it with."""

    async def strategies(self, most: int) -> Sequence[P] | None:
        """Ways to go about it, without code."""
        ...

    async def write(self, node: SearchNode[P]) -> Made[P] | None:
        """Code by a strategy, or the parent's code mended by a reflection; its value is the share of tests passed."""
        ...

    async def review(self, made: Made[P]) -> float:
        """The critic's grade in [0, 1]."""
        ...

    async def reflect(self, made: Made[P], most: int) -> Sequence[P]:
        """What to change next: one or several, without code."""
        ...


class CodeTree(Generic[P]):
    """The plan and what makes its moves: the latest proposal that was not tried is tried next."""

    def __init__(self, rules: CodeTreeRules, coder: Coder[P]) -> None:
        self.rules = rules
        self.coder = coder
        self.accepted: SearchNode[P] | None = None
        self.select = Stack(untried, priority=lambda node: 0.0)

    def moves(self, moment: Moment[P]) -> Sequence[Move[P]]:
        """The strategies at first, then one solution a turn, until one is accepted."""
        node = None if self.accepted else self.select(moment)
        if node is None:
            return []
        if node.parent is None:
            return [Move(node, "strategy", ways=self.rules.ways)]
        return [Move(node, "solve" if node.depth == 1 else "debug")]

    def backup(self, graph: SearchGraph[P], move: Move[P], nodes: Sequence[SearchNode[P]]) -> None:
        """Nothing is told upwards; what was tried is not tried again."""
        move.node.notes[TRIED] = True

    async def make(self, moves: Sequence[Move[P]]) -> Sequence[Sequence[Made[P]]] | None:
        """Propose, or write, test, review and reflect."""
        node, rules = moves[0].node, self.rules
        if node.parent is None:
            first = await self.coder.strategies(rules.ways)
            return None if first is None else [[Made(payload) for payload in first[: rules.ways]]]
        made = await self.coder.write(node)
        if made is None:
            return None
        if made.value is None:
            return [[replace(made, here=True, closed=True)]]
        worth, goes_on = await self.judged(node, made)
        made = replace(made, value=worth, here=True, closed=not goes_on)
        ideas = await self.coder.reflect(made, rules.ways) if goes_on else ()
        return [[made, *(Made(payload) for payload in ideas[: rules.ways])]]

    async def judged(self, node: SearchNode[P], made: Made[P]) -> tuple[float, bool]:
        """The node's value, and whether its line goes on."""
        rules, passed, above = self.rules, made.value or 0.0, node.parent
        assert above is not None
        deepest = node.depth >= rules.depth
        if passed >= 1:
            node.notes["passed"] = True
            twice = deepest and bool(above.notes.get("passed"))
            if await self.coder.review(made) >= rules.accept or twice:
                self.accepted = node
            return 1 + MOST / 15, self.accepted is None and not deepest
        if deepest:
            return passed, False
        said = round(MOST * await self.coder.review(made)) if rules.critic else 0
        value = passed + said / 15
        if not rules.prune or above.value is None:
            return value, True
        return value, value > above.value or (value == above.value and node.depth <= said)


def written(graph: SearchGraph[Any]) -> list[SearchNode[Any]]:
    """Nodes that hold code."""
    return [node for node in graph if node.notes.get(TRIED) and node.parent is not None and node.value is not None]
