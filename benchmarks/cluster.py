"""A pool of Ray actors against the engine itself, on the same requests in one run.

    python benchmarks/cluster.py [--requests 128] [--tokens 64] [--engines 1] [--repeats 5] [--json FILE]

The embedded policy answers prompts of countdown in groups of eight: asked directly in this process, and through a pool
(ends only; with every increment streamed; with every increment sent to the driver unasked). One engine of the pool has
as many threads as the direct one, and sides take turns, so a ratio is what the hop costs: below 1 the pool is slower.
More engines than processors to spare only share them. Samples must be those of the direct engine, up to draws within
rounding of a boundary (`drawn.py`).

With --shrink an engine leaves a pool in the middle of its work, with prefixes handed over and with prefixes read again
(`cluster_shrink.py`; its options follow).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import cluster_shrink
import numpy as np
import torch
from drawn import check, differ, doubled
from machine import save

from rolltree.cluster import PoolEngine
from rolltree.cluster.rays import RayTransport, Where, joined
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Engine, Request, Sample, Sampling
from rolltree.policy.load import load_model
from rolltree.task.registry import load_task

GROUP = 8


@dataclass(frozen=True)
class Row:
    """Tokens a second, and the ratio to the direct engine in the same repeat."""

    side: str
    engines: int
    requests: int
    tokens: int
    rate_median: float
    ratio_min: float
    ratio_median: float
    ratio_max: float


def requests(engine: Engine, count: int, tokens: int) -> list[Request]:
    """Groups of eight on prompts of countdown; every one runs to its full length."""
    items = islice(load_task("countdown").items("train"), -(-count // GROUP))
    prompts = [np.asarray(engine.codec.encode(item.prompt), np.int32) for item in items]
    return [
        Request(prompts[i // GROUP], Sampling(tokens, ignore_eos=True, seed=i), affinity=str(i // GROUP))
        for i in range(count)
    ]


async def whole(engine: Engine, asked: Sequence[Request]) -> list[Sample]:
    """Every sample as it ends."""
    return await asyncio.gather(*(engine.submit(request) for request in asked))


async def streamed(engine: Engine, asked: Sequence[Request]) -> list[Sample]:
    """Every sample, by its increments."""

    async def one(request: Request) -> Sample:
        run = engine.submit(request)
        async for _ in run:
            pass
        return await run

    return await asyncio.gather(*(one(request) for request in asked))


Side = tuple[str, Engine, Callable[[Engine, Sequence[Request]], Any], str]


async def measure(sides: Sequence[Side], asked: Sequence[Request], repeats: int) -> dict[str, list[float]]:
    """Tokens a second by side and repeat, after one warm-up each; everywhere what the seeds draw, or an error."""
    rates: dict[str, list[float]] = {name: [] for name, *_ in sides}
    model = doubled(load_model("nano").model)
    truth = list[Sample]()
    for repeat in range(repeats + 1):
        for name, engine, how, _ in sides:
            began = time.perf_counter()
            samples = await how(engine, asked)
            seconds = time.perf_counter() - began
            if not truth:
                truth += samples
                check(model, asked, truth)
            if others := [i for i, (a, b) in enumerate(zip(samples, truth, strict=True)) if differ(a, b)]:
                found = check(model, [asked[i] for i in others], [samples[i] for i in others])
                print(f"{name}: {len(others)} samples are not the direct engine's, within rounding: {found}")
            if repeat:
                rates[name].append(sum(len(s.actions) for s in samples) / seconds)
    return rates


def main() -> None:
    if "--shrink" in sys.argv:
        sys.argv.remove("--shrink")
        cluster_shrink.main()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    make = partial(LocalEngine, "nano", threads=options.threads)
    torch.set_num_threads(options.threads)
    # Ray's processes usually yield to all others; on a busy machine the ratio would be that of the priorities.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with joined(Where(engines=options.engines)):
        ends = PoolEngine(make, options.engines, RayTransport(num_cpus=0), patience=600)
        follow = PoolEngine(make, options.engines, RayTransport(num_cpus=0), patience=600, follow=True)
        direct = make()
        sides: list[Side] = [
            ("direct, ends", direct, whole, "direct, ends"),
            ("pool, ends", ends, whole, "direct, ends"),
            ("pool, followed", follow, whole, "direct, ends"),
            ("direct, streamed", direct, streamed, "direct, streamed"),
            ("pool, streamed", ends, streamed, "direct, streamed"),
        ]

        async def work() -> dict[str, list[float]]:
            try:
                asked = requests(direct, options.requests, options.tokens)
                return await measure(sides, asked, options.repeats)
            finally:
                for engine in (direct, ends, follow):
                    await engine.close()

        rates = asyncio.run(work())
    done: list[Row] = []
    print(f"{'':18} tokens/s   ratio to the direct engine, min / median / max")
    for name, _, _, base in sides:
        ratios = [a / b for a, b in zip(rates[name], rates[base], strict=True)]
        size = (options.engines, options.requests, options.tokens)
        middle = statistics.median(rates[name])
        done.append(Row(name, *size, middle, min(ratios), statistics.median(ratios), max(ratios)))
        row = done[-1]
        print(f"{name:18} {middle:8,.0f}   {row.ratio_min:.2f} / {row.ratio_median:.2f} / {row.ratio_max:.2f}")
    save(options.json, done)


if __name__ == "__main__":
    main()
