"""MCGS and UCT on NK landscapes: `python -m rolltree_papers.mcgs.study`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rolltree.generate.random import mix
from rolltree.generate.search.graph import SearchGraph
from rolltree.generate.search.loop import search
from rolltree_papers.mcgs import Mcgs, McgsRules
from studies.command import run_study
from studies.lab.claim import Measured
from studies.search.nk import BLOCKS, Artifact, Editor, Landscape

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
    raise SystemExit(run_study("rolltree_papers.mcgs.study", NkSettings, main, __doc__))
