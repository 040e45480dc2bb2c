"""Training under a schedule against synchronous training, on the embedded engine with a long tail of lengths.

    python benchmarks/overlap.py [--schedules areal april] [--repeats 3] [--steps 4] [--slots 32]
        [--sync-threads 1 2] [--json FILE]

A random model ends one token in a hundred, so lengths have an exponential tail: the longest of a batch is about five
times the mean. The engine has fewer slots than a batch has rollouts. Rates are trained tokens a second of the wall
clock, after as many steps as a schedule needs to be in full swing; every ratio compares a run with the synchronous one
made just before it. Idle shares: of the engine the time without any rollout, of the trainer the time it did not learn.

The engine and the trainer have one thread each. The synchronous run first has one too, which tells what overlapping is
worth by itself, and then all processors, which tells what somebody gains who has this machine and no more. On a machine
that others use, two threads get twice the share of one and the ratio says more about them than about the schedule:
`work` is the processor time per trained token over that of the synchronous run, which others hardly distort. Above 1 it
is what interrupting and starting again costs.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from machine import save
from training import Parity, model

from rolltree.engine.local import LocalEngine
from rolltree.policy.codec import HFCodec
from rolltree.recipe.grpo import Grpo
from rolltree.rollout.cursor import Cursor
from rolltree.training.config import Optim, TrainConfig
from rolltree.training.learner import make_learner
from rolltree.training.loop import Loop
from studies.lab.nano.tokenizer import build_tokenizer

WARM = {"sync": 1, "areal": 6, "april": 3}
"""Steps before the clock starts; 3 for others."""


class Rate(NamedTuple):
    """Trained tokens a second, shares of time, and processor seconds per trained token."""

    tokens: float
    engine_idle: float
    trainer_idle: float
    work: float


@dataclass(frozen=True)
class Row:
    """One schedule against sync: medians, and the ratio's range over repeats."""

    schedule: str
    sync_threads: int
    prompts: int
    group: int
    longest: int
    slots: int
    theirs: float
    ours: float
    sync_engine_idle: float
    engine_idle: float
    sync_trainer_idle: float
    trainer_idle: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    work: float


def rate(schedule: str, shape: tuple[int, int, int], slots: int, steps: int, threads: int) -> Rate:
    """Some steps of the real loop."""
    torch.set_num_threads(threads)
    prompts, group, longest = shape
    task = Parity(20, longest)
    config = TrainConfig(prompts=prompts, optim=Optim(lr=1e-6), scheduler=schedule)
    trained, parts = model(), Grpo(group=group).build()
    warm = WARM.get(schedule, 3)

    async def run() -> Rate:
        engine = LocalEngine(trained, HFCodec(build_tokenizer(1024)), version=-1, max_batch=slots)
        loop = Loop(parts, engine, task, make_learner(parts, trained, config), config, Cursor(task, 0))
        tokens, engine_idle, trainer_idle = 0.0, list[float](), list[float]()
        begin = worked = 0.0
        try:
            await loop.publish()
            for number in range(warm + steps):
                if number == warm:
                    begin, worked = time.perf_counter(), time.process_time()
                numbers, trees = await loop.step()
                if number >= warm:
                    tokens += sum(len(n) for tree in trees for n in tree if n.trainable)
                    engine_idle.append(numbers["time/engine_idle"])
                    trainer_idle.append(numbers["time/trainer_idle"])
            seconds, worked = time.perf_counter() - begin, time.process_time() - worked
        finally:
            await loop.close()
            await engine.close()
        return Rate(tokens / seconds, statistics.mean(engine_idle), statistics.mean(trainer_idle), worked / tokens)

    return asyncio.run(run())


def row(schedule: str, threads: int, shape: tuple[int, int, int], slots: int, steps: int, repeats: int) -> Row:
    """Pairs, one after the other."""
    pairs = [
        (rate("sync", shape, slots, steps, threads), rate(schedule, shape, slots, steps, 1)) for _ in range(repeats)
    ]
    ratios = [ours.tokens / sync.tokens for sync, ours in pairs]
    work = statistics.median(ours.work / sync.work for sync, ours in pairs)
    sync, ours = ([statistics.median(x) for x in zip(*side, strict=True)] for side in zip(*pairs, strict=True))
    return Row(
        schedule, threads, *shape, slots, sync[0], ours[0], sync[1], ours[1], sync[2], ours[2], min(ratios),
        statistics.median(ratios), max(ratios), work,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", nargs="*", default=["areal", "april"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--sync-threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--shape", type=int, nargs=3, default=(8, 8, 384), metavar=("PROMPTS", "GROUP", "LONGEST"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    done: list[Row] = []
    print("schedule  sync threads, tokens/s  tokens/s   engine idle   trainer idle   ratio min med max   work")
    for schedule, threads in itertools.product(options.schedules, dict.fromkeys(options.sync_threads)):
        r = row(schedule, threads, tuple(options.shape), options.slots, options.steps, options.repeats)
        done.append(r)
        print(
            f"{r.schedule:9} {r.sync_threads:12} {r.theirs:9,.0f} {r.ours:9,.0f}   "
            f"{r.sync_engine_idle:.2f} → {r.engine_idle:.2f}   "
            f"{r.sync_trainer_idle:.2f} → {r.trainer_idle:.2f}    {r.ratio_min:.2f} {r.ratio_median:.2f} "
            f"{r.ratio_max:.2f}   {r.work:.2f}", flush=True,
        )  # fmt: skip
    save(options.json, done)


if __name__ == "__main__":
    main()
