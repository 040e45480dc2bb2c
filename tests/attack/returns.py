"""Tasks that return anything: every rollout ends, what is no answer has failed, and nothing else is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.rollout.underway import failures
from rolltree.task.protocol import Item, Reply, Verdict
from rolltree.tree.forest import assert_conserved
from rolltree.tree.store.parquet import load, save
from tests.attack.frame import Attack, BrokenPromiseError
from tests.attack.odd import VALUES

LETTERS = "ab.\x00"


@dataclass(frozen=True)
class Odd:
    """A dialogue in which what the task returns is drawn anew each time."""

    rng: random.Random
    name: str = "odd"
    level: int = 0
    stop: tuple[str, ...] = (".",)
    max_tokens: int = 12
    max_turns: int = 3

    def items(self, split: str, seed: int = 0) -> Iterator[Item]:
        """Two prompts."""
        yield from (Item(f"{n}\ud800", "ab"[n], "x") for n in range(2))

    def start(self, item: Item) -> Any:
        """A state and its key, or something else."""
        return (0, "0") if self.rng.random() < 0.9 else self.any(None)

    async def step(self, item: Item, state: Any, text: str) -> Any:
        """A reply, or something else, or an exception."""
        return self.any(Reply(self.value("b"), state, self.rng.random() < 0.3, self.value(0.0), parts=self.value({})))

    async def verify(self, item: Item, state: Any, text: str) -> Any:
        """A verdict, or something else, or an exception."""
        return self.any(Verdict(self.value(1.0), self.value({"a": 1.0}), self.value("x"), self.value("")))

    def value(self, good: Any) -> Any:
        """A good value, or an odd one."""
        return good if self.rng.random() < 0.8 else self.rng.choice(VALUES)

    def any(self, good: Any) -> Any:
        """A good answer, an odd value, or an exception."""
        drawn = self.rng.random()
        if drawn < 0.1:
            raise self.rng.choice([ValueError("x\ud800"), KeyError(), ExceptionGroup("g", [OSError("a"), KeyError()]),
                                   StopIteration(), RecursionError(), MemoryError()])  # fmt: skip
        return good if drawn < 0.85 else self.rng.choice(VALUES)


def returns(rng: random.Random, place: Path) -> str:
    """Grow two trees from such a task, and save them."""
    engine = TabularEngine(lambda prefix: np.full(4, 0.25), Letters(LETTERS, eos_id=3))
    task: Any = Odd(rng)
    forest = asyncio.run(grow(Independent(4), engine, task, list(task.items("train")), seed=rng.randrange(99)))
    assert_conserved(forest, settled=True)
    for tree in forest:
        for leaf in tree.leaves():
            if leaf.status == "done" and leaf.parent is not None and not np.isfinite(leaf.scores.get("reward", np.nan)):
                raise BrokenPromiseError(f"leaf {leaf.id} is done with the reward {leaf.scores.get('reward')!r}")
    failed, _, first = failures(forest)
    if failed and not first:
        raise BrokenPromiseError(f"{failed} rollouts failed without a word")
    save(forest, place / "forest", states="drop")
    if [t.id for t in load(place / "forest")] != [t.id for t in forest]:
        raise BrokenPromiseError("what was saved is not what was loaded")
    return "failed and said so" if failed else "all good"


ATTACKS = (Attack("returns", "tasks that return anything", returns, 8, 400),)
