"""What a shrink costs a pool of Ray actors, with prefixes handed over and with prefixes read again.

    python benchmarks/cluster_shrink.py [--engines 3] [--prompts 12] [--group 4] [--length 384] [--tokens 48]
        [--repeats 5] [--json FILE]

The embedded policy answers long prompts in groups. In the middle of it one engine leaves, and its requests go on in the
others. Counted from then on: prefix tokens that engines compute, and processor seconds of all engines together. Both
ways run in one pool, turn and turn about, on prompts of their own; every sample must be what an engine alone writes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from machine import save

from rolltree.cluster import PoolEngine
from rolltree.cluster.rays import RayTransport, Where, joined
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Engine, Request, Sample, Sampling

SECONDS = 120.0


@dataclass(frozen=True)
class Row:
    """Hand-over over reading again, repeat by repeat."""

    what: str
    engines: int
    requests: int
    length: int
    tokens: int
    handed_over: float
    """Median."""
    read_again: float
    ratio_min: float
    ratio_median: float
    ratio_max: float


@dataclass
class Watch:
    """Processor seconds of processes, read until they end."""

    pids: Sequence[int]
    seen: dict[int, float] = field(default_factory=dict[int, float])
    over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Once."""
        for pid in self.pids:
            try:
                used = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            self.seen[pid] = used.user + used.system

    def follow(self) -> None:
        """Until it is over."""
        while not self.over.wait(0.02):
            self.look()


@dataclass(frozen=True)
class Cost:
    """Of one shrink."""

    prefilled: float
    seconds: float


def requests(engine: Engine, prompts: int, group: int, length: int, tokens: int, seed: int) -> list[Request]:
    """Groups on random prompts that no other seed has."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(1, 90, length).astype(np.int32) for _ in range(prompts)]
    return [
        Request(texts[i // group], Sampling(tokens, ignore_eos=True, seed=i), affinity=f"{seed}/{i // group}")
        for i in range(prompts * group)
    ]


async def shrink(pool: PoolEngine, asked: Sequence[Request], engines: int) -> tuple[list[Sample], Cost]:
    """Samples, and what they cost from the moment on at which an engine was to leave."""
    runs = [pool.submit(request) for request in asked]
    before = 0
    for run in runs:
        async for part in run:
            before += part.prefilled
            break
    await pool.pause()
    watch = Watch(pool.health.pids)
    watch.look()
    began = dict(watch.seen)
    follower = threading.Thread(target=watch.follow)
    follower.start()
    try:
        await pool.resize(engines - 1)
        await pool.resume()
        samples = list(await asyncio.gather(*runs))
    finally:
        watch.over.set()
        follower.join()
    watch.look()
    seconds = sum(watch.seen[pid] - began[pid] for pid in began)
    return samples, Cost(sum(sample.prefilled for sample in samples) - before, seconds)


async def measure(options: argparse.Namespace, pool: PoolEngine, alone: Engine) -> dict[float, list[Cost]]:
    """Costs by how long a hand-over may take, after one turn each to warm up."""
    costs: dict[float, list[Cost]] = {SECONDS: [], 0.0: []}
    for repeat in range(options.repeats + 1):
        for way, found in costs.items():
            pool.handover = way
            await pool.resize(options.engines)
            seed = 2 * repeat + (way > 0)
            asked = requests(pool, options.prompts, options.group, options.length, options.tokens, seed)
            samples, cost = await shrink(pool, asked, options.engines)
            truth = await asyncio.gather(*map(alone.submit, asked))
            if any(not np.array_equal(a.actions, b.actions) for a, b in zip(samples, truth, strict=True)):
                raise RuntimeError("the pool wrote other tokens than an engine alone")
            if repeat:
                found.append(cost)
            print(f"{'handed over' if way else 'read again':12} {cost}", flush=True)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    make = partial(LocalEngine, "nano", threads=1)
    os.environ.setdefault("RAY_worker_niceness", "0")
    with joined(Where(engines=options.engines)):
        pool = PoolEngine(make, options.engines, RayTransport(num_cpus=0), patience=600, follow=True)
        alone = make()

        async def work() -> dict[float, list[Cost]]:
            try:
                return await measure(options, pool, alone)
            finally:
                await alone.close()
                await pool.close()

        costs = asyncio.run(work())
        print(pool.health)
    rows = list[Row]()
    for what in ("prefilled", "seconds"):
        mine, theirs = ([getattr(cost, what) for cost in costs[way]] for way in (SECONDS, 0.0))
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        sizes = (options.engines, options.prompts * options.group, options.length, options.tokens)
        rows.append(Row(
            what, *sizes, statistics.median(mine), statistics.median(theirs), min(ratios), statistics.median(ratios),
            max(ratios),
        ))  # fmt: skip
        print(rows[-1])
    save(options.json, rows)


if __name__ == "__main__":
    main()
