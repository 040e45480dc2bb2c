"""NK landscapes and blind edits of their artifacts, for searches of several papers.

An artifact has five blocks of many variants. The value of a block depends on itself and on K others, so K = 0 is
separable (a good block is good anywhere) and with K = 4 every change makes all blocks new. Operators edit blindly:
improve changes one block, evolve one that helped on the way, fuse takes blocks from references, aggregate mixes the
branches' best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rolltree.generate.random import mix
from rolltree.generate.search.graph import Made, Move

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
