"""pass@1 and pass@8 of a policy on the nano suite, per task and level.

Unbiased pass@k: 1 - C(n-c, k) / C(n, k) for c right of n samples, averaged over items (Chen et al. 2021,
https://arxiv.org/abs/2107.03374). Intervals are normal ones over items, which is what a new draw of items would change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import comb, sqrt
from statistics import mean, stdev

import numpy as np

from rolltree.engine.protocol import Engine, Request, Sampling
from rolltree.task.protocol import Item, Split, Task, Verdict

Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled rollout: the policy's and the environment's text after the prompt, and its verdict."""

    text: str
    tokens: int
    """Tokens the policy wrote."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """What one task at one level gives. Intervals are half-widths at 95 %."""

    task: str
    level: int
    items: int
    samples: int
    """Rollouts per item."""
    pass_1: float
    pass_1_interval: float
    pass_k: float
    pass_k_interval: float
    k: int
    equal_groups: float
    """Share of items whose samples all score the same: groups from which a group-relative method learns nothing."""
    tokens: float
    """Mean policy tokens a rollout."""


def pass_at(k: int, right: int, samples: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right."""
    if k > samples:
        raise ValueError(f"pass@{k} needs at least {k} samples per item, not {samples}")
    return 1.0 - comb(samples - right, k) / comb(samples, k)


async def rollout(engine: Engine, task: Task, item: Item, seed: int, temperature: float = 1.0) -> Rollout:
    """Play one item with the engine: sample a turn, let the task answer, until the end or a limit."""
    codec = engine.codec
    prefix = codec.encode(item.prompt)
    state, _ = task.start(item)
    text, tokens = "", 0
    for turn in range(max(1, task.max_turns)):
        sampling = Sampling(
            max_tokens=task.max_tokens - tokens, temperature=temperature, stop=task.stop, seed=seed * 1000 + turn
        )
        sample = await engine.submit(Request(np.asarray(prefix, dtype=np.int32), sampling, affinity=item.id))
        written = codec.decode(sample.actions)
        prefix += [int(token) for token in sample.actions]
        text += written
        tokens += len(sample.actions)
        if not task.max_turns or sample.finish != "stop":
            break
        reply = await task.step(item, state, written)
        state = reply.state
        text += reply.text
        prefix += codec.encode(reply.text)
        if reply.done or tokens >= task.max_tokens:
            break
    return Rollout(text, tokens, await task.verify(item, state, text))


async def measure(
    engine: Engine,
    task: Task,
    *,
    items: int = 128,
    samples: int = 16,
    k: int = 8,
    split: Split = "test",
    seed: int = 0,
    temperature: float = 1.0,
) -> Measured:
    """Sample every one of the first `items` different items of a split and count what is right."""
    drawn = islice(task.items(split, seed), 20 * items)
    chosen = list({item.id: item for item in drawn}.values())[:items]
    played = await asyncio.gather(
        *(rollout(engine, task, item, seed + n, temperature) for item in chosen for n in range(samples))
    )
    groups = [played[first : first + samples] for first in range(0, len(played), samples)]
    right = [sum(one.verdict.score == 1 for one in group) for group in groups]
    ones, ks = [count / samples for count in right], [pass_at(k, count, samples) for count in right]
    return Measured(
        task=task.name,
        level=task.level,
        items=len(chosen),
        samples=samples,
        pass_1=mean(ones),
        pass_1_interval=half_width(ones),
        pass_k=mean(ks),
        pass_k_interval=half_width(ks),
        k=k,
        equal_groups=mean(len({one.verdict.score for one in group}) == 1 for group in groups),
        tokens=mean(one.tokens for one in played),
    )


def half_width(values: Sequence[float]) -> float:
    """Half the normal 95 % interval of a mean."""
    return Z95 * stdev(values) / sqrt(len(values)) if len(values) > 1 else float("inf")
