"""What evidence about guessing ahead rests on: tokens per request and forward pass of the embedded policy.

A round samples the same prompts anew, as rollouts of a group and of later steps do. Counts, not seconds: what a pass
costs depends on the machine (docs/speed.md).
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.speculate.shapes import Growth, GuessWidths, Space, Spine
from rolltree.engine.local.speculate.spec import Speculation
from rolltree.engine.local.speculate.speculator import SpeculationCounts
from rolltree.engine.local.speculate.tree import DraftTree
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy.load import load_model
from rolltree.task.registry import load_task
from studies.lab.claim import Measured

PROMPTS, GROUP, ROUNDS, TOKENS = 2, 4, 4, 48


@dataclass(frozen=True, slots=True)
class WatchedSpine(Spine):
    """The spine with branches, which tells of every tree whether it holds both copies and branches."""

    mixed: list[bool] = field(default_factory=list[bool])

    def grow(self, tree: DraftTree, space: Space) -> Growth:
        """As it does."""
        yield from Spine.grow(self, tree, space)
        sure = [chance >= 1 for chance in tree.chances[1:]]
        self.mixed.append(any(sure) and not all(sure))


async def _counted(how: str | Speculation, seed: int) -> SpeculationCounts:
    loaded, task = load_model("nano"), load_task("arithmetic")
    shape = Speculation.of(how) if isinstance(how, str) else how
    assert shape is not None
    # It never rests: shapes are compared, and not the rule that leaves them out.
    engine = LocalEngine(loaded, speculate=replace(shape, least=0.0), seed=seed, lockstep=True)
    items = itertools.islice(task.items("train", seed), PROMPTS)
    prompts = [np.array(loaded.codec.encode(item.prompt), np.int32) for item in items]
    for again in range(ROUNDS):
        await asyncio.gather(*(
            engine.submit(Request(prompt, Sampling(TOKENS, seed=10_000 * seed + 100 * again + 10 * i + k)))
            for i, prompt in enumerate(prompts)
            for k in range(GROUP)
        ))  # fmt: skip
        await engine.learn()
    await engine.close()
    assert engine.speculation is not None
    return engine.speculation


def counted(how: str | Speculation, seed: int) -> SpeculationCounts:
    """What came of the guesses of all rounds."""
    torch.set_num_threads(1)
    return asyncio.run(_counted(how, seed))


def delayed_trees(seed: int) -> Measured:
    """A trunk of one and three paths of four after it, against three paths of four from the first token on."""
    mine, theirs = counted("suffix:1+3x4", seed), counted("suffix:3x1x1x1", seed)
    return Measured(mine.per_row, theirs.per_row, acted={"right guesses": mine.accepted})


BALANCED = Speculation("adjacent", GuessWidths((2, 2, 2, 2, 2)))
"""A tree of the same adjacency with as many guesses at every place: 62, and the spine with its branches has 60."""


def goose(seed: int) -> Measured:
    """A spine of copies with branches, against the better of its two sources alone: a balanced tree of adjacency with
    as many guesses, and copies as long as the budget.
    """
    spine = WatchedSpine()
    mine = counted(Speculation("adjacent", spine), seed)
    theirs = max(counted(how, seed).per_row for how in (BALANCED, f"ngram:{spine.budget}"))
    return Measured(mine.per_row, theirs, acted={"trees of copies and branches": float(np.mean(spine.mixed))})


def tlt(seed: int) -> Measured:
    """Heads that learn between rounds, against chains of as many guesses from earlier texts, which learn nothing."""
    mine, theirs = counted("heads:2", seed), counted("suffix:2", seed)
    return Measured(mine.per_row, theirs.per_row, acted={"training steps": float(mine.trained)})
