"""CodeTree with an editor whose chances are known: `python -m rolltree_papers.codetree.study`.

A program has eight sub-problems, of which six are seen by the tests. It follows one of several strategies; each
sub-problem is right with the strategy's chance, and an edit keeps what is right with `keeps` and draws the rest anew. A
critic of known accuracy says whether the strategy is a good one, or, where all tests pass, whether all of it is right.
Programs, reviews and lists of strategies or edits are one call each, and all arms have as many calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.generate.random import mix
from rolltree.generate.search.graph import Made, SearchGraph, SearchNode
from rolltree.generate.search.loop import search
from rolltree_papers.codetree import CodeTree, CodeTreeRules, written
from studies.command import run_study
from studies.lab.claim import Measured

PARTS, SEEN, CALLS = 8, 6, 60
TURN = 3
"""Calls of a program with its review and its reflection: one is begun where all three can be paid."""


@dataclass(frozen=True, slots=True)
class Program:
    """A strategy, and which sub-problems are right; none before it is written."""

    strategy: int
    right: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Editor:
    """The world: chances of a sub-problem by strategy."""

    chances: tuple[float, ...] = (0.7, 0.25, 0.25, 0.25, 0.25)
    keeps: float | None = 0.95
    """Chance that an edit keeps what is right; None = an edit writes everything anew."""
    accuracy: float = 0.9
    """Of the critic."""
    ideas: int = 2
    """Reflections on one program."""


class Coding:
    """One search's programs."""

    def __init__(self, world: Editor, seed: int, calls: int = CALLS) -> None:
        self.world = world
        self.calls = calls
        self.spent = 0
        self.rng = np.random.default_rng(mix("coding", seed))

    async def strategies(self, most: int) -> list[Program]:
        """Every strategy once in a drawn order, and again as often as is asked for."""
        self.spent += 1
        count = len(self.world.chances)
        orders = [self.rng.permutation(count) for _ in range(-(-most // count))]
        return [Program(int(i)) for i in np.concatenate(orders)[:most]]

    async def write(self, node: SearchNode[Program]) -> Made[Program] | None:
        """Write or edit, and run the tests."""
        if self.spent + TURN > self.calls:
            return None
        self.spent += 1
        plan, above = node.payload, node.parent
        fresh = self.rng.random(PARTS) < self.world.chances[plan.strategy]
        if above is not None and above.payload.right and self.world.keeps is not None:
            fresh = np.where(np.array(above.payload.right) & (self.rng.random(PARTS) < self.world.keeps), True, fresh)
        right = tuple(bool(x) for x in fresh)
        return Made(Program(plan.strategy, right), float(np.mean(right[:SEEN])), cost=1)

    async def review(self, made: Made[Program]) -> float:
        """Right with the critic's accuracy."""
        self.spent += 1
        right = made.payload.right
        good = all(right) if all(right[:SEEN]) else self.world.chances[made.payload.strategy] == max(self.world.chances)
        return float(good if self.rng.random() < self.world.accuracy else not good)

    async def reflect(self, made: Made[Program], most: int) -> list[Program]:
        """Edits of the same strategy."""
        self.spent += 1
        return [Program(made.payload.strategy)] * min(self.world.ideas, most)


@dataclass(frozen=True, slots=True)
class Found:
    """What one search came to."""

    solved: bool
    passes: bool
    """Whether the answer passes the tests that are seen."""
    written: int
    strategies: int
    """Strategies of which a program was written."""
    calls: int
    """Programs, reviews, and lists of strategies or edits."""


def found(rules: CodeTreeRules, world: Editor, seed: int, calls: int = CALLS) -> Found:
    """The answer: what was accepted, else the best value."""
    coding = Coding(world, seed, calls)
    plan = CodeTree(rules, coding)
    graph: SearchGraph[Program] = SearchGraph(Program(-1))
    asyncio.run(search(plan, graph, plan.make, turns=calls, rng=np.random.default_rng))
    made = written(graph)
    answer = plan.accepted or graph.best(made)
    right = answer.payload.right if answer is not None else ()
    return Found(bool(right) and all(right), bool(right) and all(right[:SEEN]), len(made),
                 sum(node.depth == 1 for node in made), coding.spent)  # fmt: skip


ARMS: Mapping[str, CodeTreeRules] = {
    "CodeTree": CodeTreeRules(5),
    "without pruning": CodeTreeRules(5, prune=False),
    "one line": CodeTreeRules(1, CALLS, critic=False, prune=False),
    "independent": CodeTreeRules(CALLS, 1),
}


def rates(arm: str, world: Editor, seeds: Sequence[int]) -> tuple[float, float]:
    """Shares of programs solved, and of answers that pass what is seen and are wrong."""
    rows = [found(ARMS[arm], world, seed) for seed in seeds]
    return float(np.mean([r.solved for r in rows])), float(np.mean([r.passes and not r.solved for r in rows]))


def codetree(seed: int) -> Measured:
    """CodeTree against one program that is edited again and again, from as many calls.

    What only the tree does, and is counted, is to leave a strategy for the next one.
    """
    seeds = range(400 * seed, 400 * (seed + 1))
    ours, line = ([found(ARMS[arm], Editor(), s) for s in seeds] for arm in ("CodeTree", "one line"))
    left = float(np.mean([r.strategies - 1 for r in ours]))
    return Measured(float(np.mean([r.solved for r in ours])), float(np.mean([r.solved for r in line])),
                    acted={"strategies left a search": left})  # fmt: skip


@dataclass(frozen=True)
class CodeTreeSettings:
    """How much is run."""

    seeds: int = 1000
    """Searches of each arm."""
    accuracies: tuple[float, ...] = field(default=(0.5, 0.7, 0.9, 1.0))
    """Accuracies of the critic."""


def main(settings: CodeTreeSettings) -> None:
    """Shares by arm and accuracy of the critic, and the control in which no strategy and no edit is better."""
    worlds = {f"critic {q:g}": Editor(accuracy=q) for q in settings.accuracies}
    worlds["equal strategies, no repair"] = Editor((0.5,) * 5, None)
    for name, world in worlds.items():
        for arm in ARMS:
            solved, fooled = rates(arm, world, range(settings.seeds))
            print(f"{name:28s} {arm:16s} solved {solved:.3f}  passes and is wrong {fooled:.3f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.codetree.study", CodeTreeSettings, main, __doc__))
