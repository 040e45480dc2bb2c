"""EvoGit on NK landscapes with a judge of known accuracy: `python -m rolltree_papers.evogit.study`.

The landscapes and blind edits are those of `studies.search.nk`: an edit changes one block, a merge takes each block
from either of two. The judge prefers the better of two artifacts with its accuracy, so at one half a population drifts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.generate.random import mix
from rolltree.generate.search.graph import Made, Move, SearchGraph
from rolltree.generate.search.loop import search
from rolltree_papers.evogit import BETTER, EvoGit, EvoGitRules
from studies.command import run_study
from studies.lab.claim import Measured
from studies.search.nk import Artifact, Editor, Landscape

GENERATIONS = 60


class Compared(Editor):
    """The editor of `nk`, whose offspring a judge of known accuracy compares with what they were made from."""

    def __init__(self, land: Landscape, seed: int, accuracy: float) -> None:
        super().__init__(land, seed)
        self.accuracy = accuracy

    def one(self, move: Move[Artifact]) -> Made[Artifact]:
        """An artifact, and whether it is preferred; what is the same passes."""
        self.made += 1
        rng = np.random.default_rng(mix(self.seed, "edit", self.made))
        made = self.edited(Move(move.node, "fuse", move.references) if move.operator == "merge" else move, rng)
        olds = [] if move.operator == "draft" else [move.node.payload, *(n.payload for n in move.references)]
        better = [self.preferred(made, old, rng) for old in olds]
        return Made(made, self.land.value(made), cost=1, notes={BETTER: all(better)})

    def preferred(self, made: Artifact, old: Artifact, rng: np.random.Generator) -> bool:
        """The judge's word."""
        truth = self.land.value(made) > self.land.value(old)
        return made == old or truth == (float(rng.random()) < self.accuracy)


def run(k: int, accuracy: float, seed: int, *, every: int = 3, generations: int = GENERATIONS,
        population: int = 16) -> tuple[float, float, int, int]:  # fmt: skip
    """Mean and best value of the population at the end, how many artifacts are left in it, and how often a merge took
    the places of two."""
    land = Landscape(k, mix("land", k, seed))
    plan = EvoGit(EvoGitRules(population, every))
    graph = SearchGraph[Artifact]((0,) * 5)
    asyncio.run(search(
        plan, graph, Compared(land, mix("edit", seed), accuracy).make, turns=generations + 1,
        rng=lambda turn: np.random.default_rng(mix("turn", seed, turn)),
    ))  # fmt: skip
    values = [land.value(node.payload) for node in plan.alive]
    return float(np.mean(values)), max(values), len({node.payload for node in plan.alive}), plan.replaced["merge"]


def merges(seed: int) -> Measured:
    """Mean value of the population with merges against none, where blocks are separable and the judge is right."""
    seeds = range(8 * seed, 8 * (seed + 1))
    merging, editing = (np.array([run(0, 1.0, s, every=every) for s in seeds]).mean(0) for every in (3, 0))
    return Measured(float(merging[0]), float(editing[0]), acted={"merges that took two places": float(merging[3])})


@dataclass(frozen=True)
class EvoGitSettings:
    """How much is run."""

    seeds: int = 40
    """Landscapes of each kind."""
    accuracies: tuple[float, ...] = (0.5, 0.55, 0.65, 0.8, 1.0)
    """Accuracies of the judge."""
    ks: tuple[int, ...] = (0, 4)
    """How many other blocks a block depends on."""


def main(settings: EvoGitSettings) -> None:
    """Mean, best and number of different artifacts by accuracy, with merges and without."""
    for k in settings.ks:
        for q in settings.accuracies:
            print(f"K={k} judge {q:g}  " + "  ".join(_told(k, q, every, range(settings.seeds)) for every in (3, 0)))


def _told(k: int, q: float, every: int, seeds: Sequence[int]) -> str:
    mean, best, different, _ = np.array([run(k, q, s, every=every) for s in seeds]).mean(0)
    return f"{'merging' if every else 'editing'}: mean {mean:.3f} best {best:.3f} different {different:.1f}"


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.evogit.study", EvoGitSettings, main, __doc__))
