"""A planted chain in a graph with times: `python -m rolltree_papers.intern_atlas.study`.

Nodes have a time and neighbours, most of them by chance, earlier ones included. One chain forward in time is planted;
its steps score a little higher than others. What counts is how much of it is expanded within a number of expansions.
A share of the nodes has a wrong time, so that what is barred may be the chain's next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search
from rolltree.generate.search.queues import BestFirst
from rolltree.generate.search.select import ComposedMove, Select, only, untried
from rolltree_papers.intern_atlas import TIME, later, promising, tried
from studies.command import run_study
from studies.lab.claim import Measured

Arm = Literal["best first, forward", "best first", "greedy, forward", "breadth first", "random"]
ARMS: tuple[Arm, ...] = ("best first, forward", "best first", "greedy, forward", "breadth first", "random")
NODES, WAYS, LENGTH = 400, 8, 10


@dataclass(frozen=True, slots=True)
class Lineage:
    """Times, neighbours with scores, and the planted chain."""

    times: tuple[float, ...]
    next: tuple[tuple[tuple[int, float], ...], ...]
    chain: tuple[int, ...]


def lineage(seed: int, *, wrong: float = 0.0, gap: float = 0.25, noise: float = 0.2) -> Lineage:
    """A graph; the share `wrong` of its nodes have one another's times, at 1 all of them."""
    rng = np.random.default_rng([seed, 16])
    times = rng.random(NODES)
    chain = [int(i) for i in sorted(rng.choice(NODES, LENGTH, replace=False), key=lambda i: times[i])]
    after = dict(pairwise(chain))
    rows: list[tuple[tuple[int, float], ...]] = []
    for node in range(NODES):
        others = [int(k) for k in rng.choice(NODES, WAYS, replace=False) if k not in (node, after.get(node))]
        scored = [(k, 0.5 + noise * float(rng.normal())) for k in others]
        if node in after:
            scored.insert(int(rng.integers(len(scored) + 1)), (after[node], 0.5 + gap + noise * float(rng.normal())))
        rows.append(tuple(scored))
    mixed = rng.permutation(NODES)[: round(wrong * NODES)]
    shown = times.copy()
    shown[mixed] = times[rng.permutation(mixed)]
    return Lineage(tuple(float(t) for t in shown), tuple(rows), tuple(chain))


def found(world: Lineage, arm: Arm, expansions: int = 40, seed: int = 0) -> tuple[float, int]:
    """Share of the chain that was expanded, and neighbours that were barred for coming earlier."""
    expanded: set[int] = set()
    barred = 0

    async def make(moves: Sequence[Move[int]]) -> list[list[Made[int]]]:
        nonlocal barred
        node = moves[0].node
        if node.payload in expanded:
            return [[Made(node.payload, here=True, closed=True)]]
        expanded.add(node.payload)
        node.notes[TIME] = world.times[node.payload]
        probe = SearchNode(-1, node, -1)
        ahead = [
            (k, score) for k, score in world.next[node.payload]
            if "forward" not in arm or later(probe, world.times[k])
        ]  # fmt: skip
        barred += len(world.next[node.payload]) - len(ahead)
        if arm.startswith("greedy"):
            ahead = sorted(ahead, key=lambda pair: -pair[1])[:1]
        return [[Made(k, None, score) for k, score in ahead if k not in expanded]]

    def chance(moment: Moment[int]) -> SearchNode[int] | None:
        free = [n for n in moment.graph if untried(n)]
        return free[int(moment.rng.integers(len(free)))] if free else None

    rules: dict[str, Select] = {"random": chance, "breadth first": BestFirst(untried, lambda n: -n.depth)}
    plan = ComposedMove(rules.get(arm, BestFirst(untried, promising)), only("do"), tried)
    graph: SearchGraph[int] = SearchGraph(world.chain[0])

    def rng(turn: int) -> np.random.Generator:
        return np.random.default_rng([seed, turn])

    asyncio.run(search(plan, graph, make, turns=10 * expansions, rng=rng, stop=lambda _: len(expanded) >= expansions))
    return len(expanded & set(world.chain)) / len(world.chain), barred


def recall(
    arm: Arm, seed: int, graphs: int = 50, *, wrong: float = 0.0, expansions: int = 40
) -> tuple[float, float]:  # fmt: skip
    """Means over graphs: the share found, and what was barred."""
    worlds = [lineage(seed * graphs + i, wrong=wrong) for i in range(graphs)]
    rows = [found(w, arm, expansions, i) for i, w in enumerate(worlds)]
    return float(np.mean([share for share, _ in rows])), float(np.mean([barred for _, barred in rows]))


def chained(seed: int) -> Measured:
    """Best first with the order of time against the same without, where one time in ten is wrong."""
    (ours, barred), (plain, _) = (recall(arm, seed, wrong=0.1) for arm in ("best first, forward", "best first"))
    return Measured(ours, plain, acted={"neighbours barred a search": barred})


@dataclass(frozen=True)
class LineageSettings:
    """How much is run."""

    graphs: int = 100
    """Graphs."""
    expansions: int = 40
    """Nodes whose neighbours are seen."""


def main(settings: LineageSettings) -> None:
    """Share of the chain found by arm and by the share of wrong times, at 1 all of them."""
    for wrong in (0.0, 0.1, 0.3, 1.0):
        for arm in ARMS:
            share, barred = recall(arm, 0, settings.graphs, wrong=wrong, expansions=settings.expansions)
            print(f"wrong times {wrong:.1f}  {arm:20s} chain found {share:.3f}  barred {barred:.1f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.intern_atlas.study", LineageSettings, main, __doc__))
