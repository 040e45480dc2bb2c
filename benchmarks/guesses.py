"""Decoding with guesses against decoding without: the same model, requests and draws, alternating in one process.

    rolltree bench guesses [--model nano] [--batch 1 4 16 64] [--drafters ngram suffix:3x2 heads:auto]
        [--rounds 4] [--repeats 3] [--threads 1] [--clock cpu] [--json FILE]

Every round samples the task's prompts again with other seeds, as training steps do; `suffix` learns from round to
round, `heads` between rounds, which is not timed. A sample must be the same with and without guesses, or differ by
rounding alone, else the benchmark fails: where two differ, each token of both is held against the model in double
precision (benchmarks/drawn.py). A vocabulary of fifty thousand has many tokens whose intervals are smaller than what
rounding moves.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from drawn import check, differ, doubled
from machine import clock, save

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.speculate import Speculation, SpeculationCounts
from rolltree.engine.protocol import Request, Sample, Sampling
from rolltree.policy.load import LoadedModel, load_model
from rolltree.task.registry import load_task

GROUP = 8


@dataclass(frozen=True)
class Row:
    """One comparison. Rates are generated tokens per second (medians); ratios are with guesses over without."""

    model: str
    drafter: str
    batch: int
    temperature: float
    acceptance: float
    tokens_per_forward: float
    """Per request inside."""
    with_guesses: float
    without: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    differing: int
    """Samples that are not the same to the last token, by rounding."""


@dataclass(frozen=True)
class Measured:
    """One engine over all rounds."""

    asked: list[Request]
    samples: list[Sample]
    seconds: float
    counts: SpeculationCounts | None


async def measure(
    loaded: LoadedModel, how: Speculation | None, prompts: list[np.ndarray], batch: int, asked: argparse.Namespace
) -> Measured:
    """All rounds with one engine."""
    engine = LocalEngine(loaded, speculate=how, seed=0)
    asked_all, samples, seconds = list[Request](), list[Sample](), 0.0
    group = min(GROUP, batch)
    for again in range(asked.rounds):
        began = clock()
        requests = [
            Request(prompt, Sampling(asked.max_tokens, asked.temperature, seed=again * 10_000 + i * 100 + k))
            for i, prompt in enumerate(prompts[: max(1, batch // group)])
            for k in range(group)
        ]
        samples += await asyncio.gather(*(engine.submit(request) for request in requests))
        seconds += clock() - began
        asked_all += requests
        await engine.learn()
    await engine.close()
    return Measured(asked_all, samples, seconds, engine.speculation)


def compare(loaded: LoadedModel, drafter: str, prompts: list[np.ndarray], batch: int, asked: argparse.Namespace) -> Row:
    """Pairs of runs, one after the other."""
    how = Speculation.of(drafter)
    assert how is not None
    pairs = [
        (
            asyncio.run(measure(loaded, how, prompts, batch, asked)),
            asyncio.run(measure(loaded, None, prompts, batch, asked)),
        )
        for _ in range(asked.repeats)
    ]
    differing = [
        (request, sample)
        for on, off in pairs
        for request, a, b in zip(on.asked, on.samples, off.samples, strict=True)
        if differ(a, b)
        for sample in (a, b)
    ]
    if differing and asked.temperature != 1:
        raise SystemExit(f"{len(differing) // 2} samples differ, and only draws at temperature 1 can be judged")
    if differing:
        check(doubled(deepcopy(loaded.model)), *zip(*differing, strict=True))
    counts = pairs[0][0].counts
    assert counts is not None
    rates = (
        [sum(len(sample.actions) for sample in on.samples) / on.seconds for on, _ in pairs],
        [sum(len(sample.actions) for sample in off.samples) / off.seconds for _, off in pairs],
    )
    ratios = sorted(a / b for a, b in zip(*rates, strict=True))
    return Row(
        asked.model, drafter, batch, asked.temperature, counts.acceptance, counts.per_row, statistics.median(rates[0]),
        statistics.median(rates[1]), ratios[0], statistics.median(ratios), ratios[-1], len(differing) // 2,
    )  # fmt: skip


def compare_all(asked: argparse.Namespace) -> list[Row]:
    """Every drafter at every batch, printed as it comes."""
    loaded, task = load_model(asked.model), load_task(asked.task)
    items = itertools.islice(task.items("train", 0), max(asked.batch))
    prompts = [np.array(loaded.codec.encode(item.prompt), np.int32) for item in items]
    rows = list[Row]()
    for batch, drafter in itertools.product(asked.batch, asked.drafters):
        row = compare(loaded, drafter, prompts, batch, asked)
        rows.append(row)
        print(
            f"{drafter:16} batch {batch:3}  accepted {row.acceptance:4.0%}"
            f"  tokens per forward {row.tokens_per_forward:.2f}"
            f"  tokens/s {row.without:.0f} -> {row.with_guesses:.0f}"
            f"  ratio {row.ratio_min:.2f} / {row.ratio_median:.2f} / {row.ratio_max:.2f}",
            flush=True,
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--drafters", nargs="+", default=["ngram", "suffix"])
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    clock.kind = asked.clock
    torch.set_num_threads(asked.threads)
    save(asked.json, compare_all(asked))


if __name__ == "__main__":
    main()
