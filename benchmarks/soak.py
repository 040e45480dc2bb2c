"""Asynchronous training while everything around it breaks: engine, environment and verifier fail, die and dawdle.

    python benchmarks/soak.py [--minutes 20] [--schedule areal] [--task grid] [--seed 0] [--json FILE]

The real loop trains the packaged policy. Requests are refused at random; every few seconds the engine dies with all it
has in flight and another one takes its place; environment and verifier raise, or answer late (a few very late).
After every step every leaf has one usage, every rollout is in one place (`Scheduler.check`), budgets add up. Two
minutes without progress are a deadlock. At the end memory is held against what it was before the first half was over.
Exit status 1 = something of this did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from machine import save

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Caches, EngineError, Generation, Request
from rolltree.policy.load import LoadedModel, load_model
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.cursor import Cursor
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict
from rolltree.task.registry import load_task
from rolltree.testing.faulty import Wrapped
from rolltree.training.config import Optim, TrainConfig
from rolltree.training.learner import make_learner
from rolltree.training.loop import Loop

PATIENCE = 120.0
"""Seconds without a token, an end or an update that count as a deadlock."""
GROWTH = 1.15
"""Most memory at the end over that before half of the time."""


@dataclass(frozen=True)
class Row:
    """One soak."""

    schedule: str
    minutes: float
    steps: int
    rollouts: int
    fates: dict[str, int]
    faults: dict[str, int]
    memory_half: float
    memory_end: float
    resumed: float
    slow_trained: float
    other_trained: float


class Trouble:
    """What goes wrong, at random and counted."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: Counter[str] = Counter()

    def strikes(self, what: str, share: float) -> bool:
        """Whether it goes wrong this time."""
        hit = self.rng.random() < share
        self.seen[what] += hit
        return hit

    async def dawdle(self, what: str) -> None:
        """Mostly nothing; sometimes a moment, seldom seconds."""
        if self.strikes(f"{what} late", 0.05):
            await asyncio.sleep(min(self.rng.paretovariate(1.2) * 0.05, 8.0))


class Mortal(Wrapped):
    """An engine that refuses some requests, and that dies with all it has in flight and is replaced."""

    def __init__(self, loaded: LoadedModel, trouble: Trouble) -> None:
        super().__init__(LocalEngine(loaded, version=-1))
        self.loaded, self.trouble = loaded, trouble
        self.weights: dict[str, Any] = {}

    def submit(self, request: Request) -> Generation:
        """Refused at random."""
        if self.trouble.strikes("requests refused", 0.01):
            raise EngineError("the engine refuses (injected)")
        return self.inner.submit(request)

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Remembered for the successor."""
        self.weights = {name: value.clone() for name, value in weights.items()}
        await self.inner.update_weights(self.weights, version, caches=caches)

    async def die(self) -> None:
        """What is in flight ends where it is; the next engine knows nothing but the weights."""
        old, version = self.inner, self.inner.version
        fresh = LocalEngine(self.loaded, version=version - 1)
        await fresh.update_weights(self.weights, version)
        self.inner = fresh
        self.trouble.seen["engines died"] += 1
        await old.close()


class Rough:
    """A task whose environment and verifier break and dawdle."""

    def __init__(self, inner: Task, trouble: Trouble) -> None:
        self.inner, self.trouble = inner, trouble
        self.name, self.level, self.stop = inner.name, inner.level, inner.stop
        self.max_tokens, self.max_turns = inner.max_tokens, inner.max_turns

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Those of the task."""
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """As the task does."""
        return self.inner.start(item)

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """As the task does, late, or not at all."""
        await self.trouble.dawdle("environment")
        if self.trouble.strikes("environment failed", 0.02):
            raise ConnectionError("the environment is gone (injected)")
        return await self.inner.step(item, state, text)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """As the task does, late, or not at all."""
        await self.trouble.dawdle("verifier")
        if self.trouble.strikes("verifier failed", 0.05):
            raise ConnectionError("the verifier is gone (injected)")
        return await self.inner.verify(item, state, text)


async def soak(options: argparse.Namespace) -> Row:
    """Train until the time is up."""
    trouble = Trouble(options.seed)
    loaded, task = load_model("nano"), Rough(load_task(options.task), trouble)
    parts = load_recipe(options.recipe).build()
    config = TrainConfig(prompts=options.prompts, seed=options.seed, scheduler=options.schedule, optim=Optim(lr=1e-5))
    engine = Mortal(loaded, trouble)
    learner = make_learner(parts, loaded.model, config)
    loop = Loop(parts, engine, task, learner, config, Cursor(task, options.seed))

    async def reaper() -> None:
        while True:
            await asyncio.sleep(trouble.rng.expovariate(1 / options.life))
            await engine.die()

    async def watchdog(steps: asyncio.Task[Any] | None) -> None:
        seen, since = (-1, -1), time.monotonic()
        while steps is not None:
            await asyncio.sleep(1)
            now = (executor.budget.spent.decoded + executor.budget.held("decoded"), loop.done)
            seen, since = (seen, since) if now == seen else (now, time.monotonic())
            if time.monotonic() - since > PATIENCE:
                steps.cancel(f"a deadlock: {executor.scheduler.load}, {len(executor.tasks)} rollouts are being grown")

    executor = loop.collector.executor
    process, began = psutil.Process(), time.monotonic()
    memory: list[tuple[float, float]] = []
    numbers: dict[str, float] = {}
    killer = asyncio.create_task(reaper())
    watch = asyncio.create_task(watchdog(asyncio.current_task()))
    try:
        await loop.publish()
        while (at := time.monotonic() - began) < 60 * options.minutes:
            numbers, _ = await loop.step()
            if killer.done():
                killer.result()
            gc.collect()
            memory.append((at, process.memory_info().rss / 2**20))
            if loop.done % options.say == 0:
                print(f"{at:6.0f} s  step {loop.done}  {memory[-1][1]:.0f} MiB  {dict(trouble.seen)}", flush=True)
    finally:
        killer.cancel()
        watch.cancel()
        await loop.close()
        await engine.close()
    early = [m for at, m in memory if at <= 30 * options.minutes]
    scheduler = executor.scheduler
    fates = {k: n for k, n in scheduler.numbers.items() if k != "submitted"}
    return Row(
        options.schedule, options.minutes, loop.done, scheduler.numbers["submitted"], fates, dict(trouble.seen),
        max(early or [memory[0][1]]), max(m for _, m in memory[-5:]), numbers["rollout/resumed"],
        numbers.get("rollout/slow_trained", 0.0), numbers.get("rollout/other_trained", 0.0),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--schedule", default="areal")
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--task", default="grid")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--life", type=float, default=20.0, help="mean seconds until the engine dies")
    parser.add_argument("--say", type=int, default=10, help="steps between lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = asyncio.run(soak(options))
    print(done)
    save(options.json, [done])
    if done.rollouts != sum(done.fates.values()):
        print(f"{done.rollouts} rollouts were submitted and {sum(done.fates.values())} have a usage")
        return 1
    if done.memory_end > GROWTH * done.memory_half:
        print(f"memory grew from {done.memory_half:.0f} to {done.memory_end:.0f} MiB")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
