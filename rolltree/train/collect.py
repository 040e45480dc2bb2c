"""The rollouts of one step: sample items, grow, filter, and refill while filters leave the step short."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, Sampling
from rolltree.filter.groups import drop, sift
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.recipe.recipe import Parts
from rolltree.replay.harvest import Harvest
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest, Tree

MOST_PER_ROUND = 4
"""A refill round asks for at most this many times the missing prompts, however few of the last ones were kept."""


@dataclass(slots=True)
class Cursor:
    """Where a run stands in its task's endless stream of training items."""

    task: Task
    seed: int
    taken: int = 0
    _stream: Iterator[Item] | None = None

    def take(self, count: int) -> list[Item]:
        """The next items."""
        if self._stream is None:
            self._stream = islice(self.task.items("train", self.seed), self.taken, None)
        self.taken += count
        return list(islice(self._stream, count))


async def collect(
    recipe: Parts, engine: Engine, cursor: Cursor, prompts: int, budget: Budget, *,
    seed: int, limit: int, sampling: Sampling, version: int = -1, peers: Mapping[str, Engine] | None = None,
) -> Harvest:  # fmt: skip
    """Grow until `prompts` trees passed the recipe's filters or its rounds are used up.

    Trees beyond the number asked for are dropped with that reason, as DAPO does (arXiv 2503.14476, algorithm 1).
    """
    out = Harvest(version=version)
    asked = 0
    while len(out.kept) < prompts and out.rounds < recipe.rounds:
        missing = prompts - len(out.kept)
        rate = len(out.kept) / asked if asked else 1.0
        count = missing if not asked else min(math.ceil(missing / max(rate, 1e-9)), MOST_PER_ROUND * missing)
        asked += count
        forest = await grow(
            recipe.strategy, engine, cursor.task, cursor.take(count), seed=mix(seed, "round", out.rounds),
            budget=budget, max_tokens=limit, sampling=sampling, peers=peers,
        )  # fmt: skip
        out.rounds += 1
        kept, dropped = sift(_named(forest, out.rounds, out.trees), recipe.filters)
        out.dropped.extend(dropped)
        room = prompts - len(out.kept)
        for tree in kept[room:]:
            drop(tree, "the step had enough prompts")
        out.kept.extend(kept[:room])
        out.dropped.extend(kept[room:])
    for tree in out.kept:
        for shape in recipe.shapers:
            shape(tree, limit)
    return out


def _named(forest: Forest, round: int, before: list[Tree]) -> list[Tree]:
    """Trees of later rounds get names of their own, so that one step's trees can be stored together, and go on with
    the clock where the rounds before them stopped.
    """
    trees = list(forest)
    if round > 1:
        began = max((e.at for tree in before for e in tree.events), default=0.0)
        for tree in trees:
            tree.id = f"{tree.id}@{round}"
            tree.events = [replace(e, at=e.at + began) for e in tree.events]
    return trees
