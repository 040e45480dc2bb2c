"""MCGS and UCT on NK landscapes: `python -m studies.search.nk`.

An artifact has five blocks of many variants. The value of a block depends on itself and on K others, so K = 0 is
separable (a good block is good anywhere) and with K = 4 every change makes all blocks new. Operators edit blindly:
improve changes one block, evolve one that helped on the way, fuse takes blocks from references, aggregate mixes the
branches' best.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rolltree.generate.random import mix
from rolltree.generate.search.graph import Made, Move, SearchGraph
from rolltree.generate.search.loop import search
from rolltree_papers.mcgs import Mcgs, McgsRules
from studies.command import run_study
from studies.lab.claim import Measured

Artifact = tuple[int, ...]
BLOCKS, VARIANTS = 5, 24


@dataclass(frozen=True, slots=True)
class Landscape:
    """An NK landscape by its seed; values lie in [0, 1]."""

    k: int
    seed: int
    broken: float = 0.1
    """Share of edits that give a bug."""

    def value(self, artifact: Artifact) -> float:
        """Mean over blocks of a random number that belongs to the block, its variant and those of its neighbours."""
        keys = ((i, *(artifact[(i + j) % BLOCKS] for j in range(self.k + 1))) for i in range(BLOCKS))
        return float(np.mean([mix(self.seed, *key) / 2**63 for key in keys]))


class Editor:
    """Operators over artifacts; each move draws from its own stream."""

    def __init__(self, land: Landscape, seed: int) -> None:
        self.land = land
        self.seed = seed
        self.made = 0

    async def make(self, moves: Sequence[Move[Artifact]]) -> Sequence[Sequence[Made[Artifact]]]:
        """One artifact for each move."""
        return [[self.one(move)] for move in moves]

    def one(self, move: Move[Artifact]) -> Made[Artifact]:
        """Edit and score; a bug has no value."""
        self.made += 1
        rng = np.random.default_rng(mix(self.seed, "edit", self.made))
        made = self.edited(move, rng)
        bug = float(rng.random()) < self.land.broken
        return Made(made, None if bug else self.land.value(made), cost=1)

    def edited(self, move: Move[Artifact], rng: np.random.Generator) -> Artifact:
        """The operators."""
        old = list(move.node.payload)
        spot, new = int(rng.integers(BLOCKS)), int(rng.integers(VARIANTS))
        if move.operator == "draft":
            return tuple(int(v) for v in rng.integers(VARIANTS, size=BLOCKS))
        if move.operator == "aggregate":
            return tuple(move.references[int(rng.integers(len(move.references)))].payload[i] for i in range(BLOCKS))
        if move.operator == "fuse":
            other = move.references[int(rng.integers(len(move.references)))].payload
            taken = rng.random(BLOCKS) < 0.5
            return tuple(b if t else a for a, b, t in zip(old, other, taken, strict=True))
        if move.operator == "evolve":
            helped = self.helped(move)
            spot = helped[int(rng.integers(len(helped)))] if helped else spot
        old[spot] = new
        return tuple(old)

    def helped(self, move: Move[Artifact]) -> list[int]:
        """Blocks whose last changes on the way to the node were gains."""
        path = [n for n in move.node.path()[-10:] if n.parent is not None and n.value is not None]
        gains = [(a, b) for a, b in pairwise(path) if (b.value or 0) > (a.value or 0)]
        return [i for a, b in gains for i in range(BLOCKS) if a.payload[i] != b.payload[i]]


ARMS: Mapping[str, McgsRules] = {
    "UCT": McgsRules(evolution=False, fusion=False, aggregation=False, switch=False, chains=False),
    "MCGS": McgsRules(),
    "without evolution": McgsRules(evolution=False),
    "without fusion": McgsRules(fusion=False),
    "without aggregation": McgsRules(aggregation=False),
    "without the switch": McgsRules(switch=False),
    "without chains": McgsRules(chains=False),
}


def run(rules: McgsRules, k: int, seed: int, turns: int = 500, workers: int = 3) -> tuple[float, Mcgs]:
    """The best value found, and the plan with its counts."""
    land = Landscape(k, mix("land", k, seed))
    plan = Mcgs(replace(rules, turns=turns))
    editor = Editor(land, mix("edit", seed))
    graph = SearchGraph[Artifact]((0,) * BLOCKS)
    done = search(
        plan, graph, editor.make, turns=turns, workers=workers,
        rng=lambda turn: np.random.default_rng(mix("turn", seed, turn)),
    )  # fmt: skip
    best = asyncio.run(done).best()
    return (0.0 if best is None or best.value is None else best.value), plan


def means(k: int, seeds: Sequence[int], turns: int = 500, arms: Mapping[str, McgsRules] = ARMS) -> dict[str, float]:
    """Mean best value of each arm over the same landscapes."""
    return {name: float(np.mean([run(rules, k, seed, turns)[0] for seed in seeds])) for name, rules in arms.items()}


def separable(seed: int) -> Measured:
    """MCGS against UCT with the same edits on ten separable landscapes."""
    seeds = range(10 * seed, 10 * seed + 10)
    found = {name: [run(ARMS[name], 0, s) for s in seeds] for name in ("MCGS", "UCT")}
    best = {name: float(np.mean([value for value, _ in rows])) for name, rows in found.items()}
    seen = [sum(plan.used.get(name, 0) for name in ("evolve", "fuse", "aggregate")) for _, plan in found["MCGS"]]
    return Measured(best["MCGS"], best["UCT"], acted={"edits that saw other nodes": float(np.mean(seen))})


@dataclass(frozen=True)
class NkSettings:
    """How much is run."""

    seeds: int = 100
    """Landscapes of each kind."""
    turns: int = 500
    """Edits of each search."""
    ks: tuple[int, ...] = (0, 1, 2, 4)
    """How many other blocks a block depends on."""


def main(settings: NkSettings) -> None:
    """A line for each K: paired differences to UCT with their standard errors."""
    for k in settings.ks:
        found = {n: np.array([run(r, k, s, settings.turns)[0] for s in range(settings.seeds)]) for n, r in ARMS.items()}
        for name, values in found.items():
            gap = values - found["UCT"]
            error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else 0.0
            print(f"K={k} {name:20s} {values.mean():.4f}  against UCT {gap.mean():+.4f} ± {error:.4f}")


if __name__ == "__main__":
    raise SystemExit(run_study("search.nk", NkSettings, main, __doc__))
