"""What a shrink costs a pool of Ray actors, with prefixes handed over and with prefixes read again.

    python benchmarks/cluster_shrink.py [--engines 3] [--prompts 12] [--group 4] [--length 384] [--tokens 112]
        [--repeats 5] [--json FILE]

The embedded policy answers long prompts in groups. In the middle of it one engine leaves, and its requests go on in the
others. Counted from then on: prefix tokens that engines compute, and processor seconds of all engines together. Both
ways run in one pool, turn and turn about, on prompts of their own. A shrink at which the engine that leaves has nothing
to do is begun anew. Every token must be the one that its seed draws (`drawn.py`); how many samples differ from those of
an engine alone is counted beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from drawn import ROUNDING, Found, check, differ, doubled
from machine import clock, save

from rolltree.cluster import PoolEngine
from rolltree.cluster.rays import RayTransport, Where, joined
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Engine, Request, Sample, Sampling
from rolltree.policy.load import load_model

SECONDS = 120.0
TRIES = 5
"""Shrinks that may be begun anew, one after the other."""


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


@dataclass(frozen=True)
class Same:
    """Samples over all shrinks, held against what their seeds draw."""

    what: str
    samples: int
    tokens: int
    unlike_alone: int
    """Samples that differ from those of an engine alone."""
    outside: int
    """Tokens whose interval of the exact distribution the draw is not in."""
    worst_outside: float
    """By how much, at most."""
    worst_logp: float
    """Greatest difference of a log-prob from the exact one."""
    allowed: float


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
    moved: int


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
    moved = pool.health.moved
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
    prefilled = sum(sample.prefilled for sample in samples) - before
    return samples, Cost(prefilled, seconds, pool.health.moved - moved)


async def measure(options: argparse.Namespace, pool: PoolEngine, alone: Engine) -> tuple[dict[float, list[Cost]], Same]:
    """Costs by how long a hand-over may take, after one turn each to warm up, and what samples were held against."""
    costs: dict[float, list[Cost]] = {SECONDS: [], 0.0: []}
    model, verdicts, seen, unlike = doubled(load_model("nano").model), list[Found](), 0, 0
    seeds = itertools.count()
    for repeat in range(options.repeats + 1):
        for way, found in costs.items():
            pool.handover = way
            for _ in range(TRIES):
                await pool.resize(options.engines)
                asked = requests(pool, options.prompts, options.group, options.length, options.tokens, next(seeds))
                samples, cost = await shrink(pool, asked, options.engines)
                truth = await asyncio.gather(*map(alone.submit, asked))
                verdicts.append(check(model, asked, samples))
                others = sum(map(differ, samples, truth))
                seen, unlike = seen + len(samples), unlike + others
                print(f"{'handed over' if way else 'read again':12} {cost} {verdicts[-1]} {others=}", flush=True)
                if cost.moved:
                    break
            else:
                raise RuntimeError(f"{TRIES} engines left with nothing to do; give more --tokens or fewer --engines")
            if repeat:
                found.append(cost)
    return costs, Same(
        "tokens", seen, sum(v.tokens for v in verdicts), unlike, sum(v.outside for v in verdicts),
        max(v.worst_outside for v in verdicts), max(v.worst_off for v in verdicts), ROUNDING,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--tokens", type=int, default=112)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock.kind = "cpu"
    make = partial(LocalEngine, "nano", threads=1)
    os.environ.setdefault("RAY_worker_niceness", "0")
    with joined(Where(engines=options.engines)):
        pool = PoolEngine(make, options.engines, RayTransport(num_cpus=0), patience=600, follow=True)
        alone = make()

        async def work() -> tuple[dict[float, list[Cost]], Same]:
            try:
                return await measure(options, pool, alone)
            finally:
                await alone.close()
                await pool.close()

        costs, same = asyncio.run(work())
        print(pool.health)
        print(same)
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
    save(options.json, [*rows, same])


if __name__ == "__main__":
    main()
