"""What evidence about guessing ahead rests on: tokens per request and forward pass of the embedded policy.

A round samples the same prompts anew, as rollouts of a group and of later steps do. Counts, not seconds: what a pass
costs depends on the machine (docs/speed.md).
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import numpy as np
import torch

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.speculate.spec import Speculation
from rolltree.engine.local.speculate.speculator import SpeculationCounts
from rolltree.engine.protocol import Request, Sampling
from rolltree.lab.claim import Measured
from rolltree.policy.load import load_model
from rolltree.task.registry import load_task

PROMPTS, GROUP, ROUNDS, TOKENS = 2, 4, 4, 48


async def _counted(how: str, seed: int) -> SpeculationCounts:
    loaded, task = load_model("nano"), load_task("arithmetic")
    shape = Speculation.of(how)
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


def counted(how: str, seed: int) -> SpeculationCounts:
    """What came of the guesses of all rounds."""
    torch.set_num_threads(1)
    return asyncio.run(_counted(how, seed))


def delayed_trees(seed: int) -> Measured:
    """A trunk of one and three paths of four after it, against three paths of four from the first token on."""
    mine, theirs = counted("suffix:1+3x4", seed), counted("suffix:3x1x1x1", seed)
    return Measured(mine.per_row, theirs.per_row, acted={"right guesses": mine.accepted})


def goose(seed: int) -> Measured:
    """A spine of copies with branches, against copies alone."""
    mine, theirs = counted("adjacent:spine", seed), counted("ngram", seed)
    return Measured(mine.per_row, theirs.per_row, acted={"right guesses": mine.accepted})


def tlt(seed: int) -> Measured:
    """Heads that learn between rounds, against no guesses."""
    mine = counted("heads:2", seed)
    return Measured(mine.per_row, 1.0, acted={"training steps": mine.trained, "right guesses": mine.accepted})
