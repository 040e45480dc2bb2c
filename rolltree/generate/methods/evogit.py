"""EvoGit: a population that is edited, compared in pairs, and merged (BillHuang2001/evogit).

Every individual is edited, and the edit takes its place where a judge prefers it; every third time individuals are
paired, and what two of them give takes the place of both where it is preferred to both. Nothing has a score. The rules
know nothing of what an individual is: `rolltree.recipe.evogit` puts answers behind them, the authors' study
(`studies.search.evogit`) vectors of an exact landscape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rolltree.generate.search.graph import Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment

Anode = SearchNode[Any]
BETTER = "better"
"""Key in a new node's notes: whether it was preferred to its parent, and to its reference."""


@dataclass(frozen=True, slots=True)
class EvoGitRules:
    """Knobs of the population."""

    population: int = 16
    every: int = 3
    """Each so many-th generation merges instead of editing; 0 = none does."""


class EvoGit:
    """The plan: a turn is a generation, all of its moves at once."""

    def __init__(self, rules: EvoGitRules) -> None:
        self.rules = rules
        self.alive: list[Anode] = []
        self.replaced = {"mutate": 0, "merge": 0}
        """How often an offspring took a place."""

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """Drafts, then edits of all, or merges of random pairs."""
        if not self.alive:
            return [Move(moment.graph.root, "draft")] * self.rules.population if moment.turn == 0 else []
        if not self.rules.every or moment.turn % self.rules.every:
            return [Move(node, "mutate") for node in self.alive]
        order = [self.alive[int(i)] for i in moment.rng.permutation(len(self.alive))]
        pairs = zip(order[::2], order[1::2], strict=False)
        return [Move(a, "merge", (b,)) for a, b in pairs if novel(a, b)] or [Move(n, "mutate") for n in self.alive]

    def backup(self, graph: SearchGraph[Any], move: Move[Any], nodes: Sequence[Anode]) -> None:
        """Who is preferred takes the place; of a merge that is preferred to both, in place of both."""
        for node in nodes:
            if move.operator == "draft":
                self.alive.append(node)
            elif node.notes.get(BETTER):
                olds = {move.node.id, *(other.id for other in move.references)}
                self.alive = [node if old.id in olds else old for old in self.alive]
                self.replaced[move.operator] += 1


def novel(a: Anode, b: Anode) -> bool:
    """Whether a merge could give anything new: neither is made of the other."""
    return a is not b and a not in lineage(b) and b not in lineage(a)


def lineage(node: Anode) -> set[Anode]:
    """The node and all it was made of, along parents and references."""
    seen, open_ = set[Anode](), [node]
    while open_:
        here = open_.pop()
        if here not in seen:
            seen.add(here)
            open_.extend(here.references)
            if here.parent is not None:
                open_.append(here.parent)
    return seen
