"""I-MCTS's selection on pipelines of exact worth: `python -m rolltree_papers.i_mcts.study`.

A pipeline has three stages with five choices each; every choice adds a Gaussian effect to the worth of all pipelines
through it. Running a node gives the worth of its choices so far, the rest of the pipeline being the usual one. The
prior of a node is its worth seen with noise, with a given correlation to it. Ten runs; what counts is the best worth
seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolltree.generate.random import mix
from rolltree.generate.search.graph import Made, Move, SearchGraph
from rolltree.generate.search.loop import search
from rolltree_papers.i_mcts import Introspective
from studies.command import run_study
from studies.lab.claim import Measured

STAGES, CHOICES, EFFECT, RUNS = 3, 5, 0.08, 10
Choices = tuple[int, ...]


class Pipelines:
    """Worth and priors by seed."""

    def __init__(self, seed: int, rho: float) -> None:
        self.rng = np.random.default_rng(mix("pipelines", seed))
        self.rho = rho
        self.worth: dict[Choices, float] = {(): 0.5}

    def expand(self, node: Choices) -> list[tuple[Choices, float]]:
        """The choices of the next stage, each with its prior; none behind the last stage."""
        if len(node) == STAGES:
            return []
        out: list[tuple[Choices, float]] = []
        for i in range(CHOICES):
            effect, noise = self.rng.normal(size=2)
            self.worth[(*node, i)] = self.worth[node] + EFFECT * float(effect)
            seen = self.rho * effect + (1 - self.rho**2) ** 0.5 * noise
            out.append(((*node, i), self.worth[node] + EFFECT * float(seen)))
        return out


def searched(rho: float, seed: int, *, flat: bool = False, c: float = 2.0, prior: float = 0.2) -> SearchGraph[Choices]:
    """Ten runs. With `prior` = 0 it is plain UCT, whose first child comes first."""
    world = Pipelines(seed, rho)
    plan = Introspective(RUNS, c=c, prior=prior, flat=flat)

    async def make(moves: Sequence[Move[Choices]]) -> Sequence[Sequence[Made[Choices]]]:
        node = moves[0].node.payload
        tried = Made(node, world.worth[node], here=True)
        return [[tried, *(Made(child, None, prior) for child, prior in world.expand(node))]]

    graph = SearchGraph[Choices](())
    done = search(plan, graph, make, turns=RUNS, rng=np.random.default_rng)
    return asyncio.run(done)


def best(graph: SearchGraph[Choices]) -> float:
    """The best worth that was seen."""
    return max(node.value for node in graph if node.value is not None)


def best_worth(rho: float, seed: int, **knobs: Any) -> float:
    """The best worth of ten runs."""
    return best(searched(rho, seed, **knobs))


def out_of_order(graph: SearchGraph[Choices]) -> int:
    """Runs that were made before one of a sibling that was proposed earlier: what grades before a run change."""
    run = {node.payload for node in graph if node.value is not None and node.payload}
    return sum(any((*choices[:-1], i) not in run for i in range(choices[-1])) for choices in run)


def means(rhos: Sequence[float], seeds: int, **knobs: Any) -> list[float]:
    """Mean best worth for each correlation."""
    return [float(np.mean([best_worth(rho, seed, **knobs) for seed in range(seeds)])) for rho in rhos]


def imcts(seed: int) -> Measured:
    """The blended descent with priors of correlation 0.5 against plain UCT, on pipelines drawn alike: as many runs,
    and no grades before them.
    """
    seeds = range(100 * seed, 100 * seed + 100)
    blended, plain = ([searched(0.5, s, prior=prior) for s in seeds] for prior in (0.2, 0.0))
    return Measured(
        float(np.mean([best(graph) for graph in blended])), float(np.mean([best(graph) for graph in plain])),
        acted={"runs out of order, of ten": float(np.mean([out_of_order(graph) for graph in blended]))},
    )  # fmt: skip


@dataclass(frozen=True)
class PipelineSettings:
    """How much is run."""

    seeds: int = 2000
    """Sets of pipelines."""
    rhos: tuple[float, ...] = (-0.5, 0.0, 0.5, 0.9)
    """Correlations of the prior with the truth."""


def main(settings: PipelineSettings) -> None:
    """A line for each way to select."""
    for name, knobs in {"descent": {}, "descent, c = 0.2": {"c": 0.2}, "flat": {"flat": True},
                        "plain UCT": {"prior": 0.0}}.items():  # fmt: skip
        found = means(settings.rhos, settings.seeds, **knobs)
        print(f"{name:18s}", "  ".join(f"{rho:+.1f}: {x:.3f}" for rho, x in zip(settings.rhos, found, strict=True)))


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.i_mcts.study", PipelineSettings, main, __doc__))
