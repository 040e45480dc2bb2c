"""Small products in a second thread, while the first thread's team of processors stands idle and after it has ended.

    python benchmarks/team.py [--threads 2] [--repeats 5] [--json FILE]

Microseconds by the wall clock, minimum / median / maximum of the repeats (see `rolltree.policy.device`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from machine import save

from rolltree.policy.device import release_team

SHAPES = ((128, 128, 344), (256, 128, 128), (8192, 128, 344))
"""Rows, inner size, columns: two of a decoding step and one of a training step of the embedded policy."""


@dataclass(frozen=True)
class Row:
    """One product: microseconds beside an idle team, and alone."""

    shape: tuple[int, int, int]
    threads: int
    beside: tuple[float, float, float]
    alone: tuple[float, float, float]


def micros(shape: tuple[int, int, int], repeats: int) -> tuple[float, float, float]:
    """The product in a thread of its own."""
    n, k, m = shape
    a, b = torch.randn(n, k), torch.randn(k, m)
    count = max(3, int(1e9 / (n * k * m)))

    def once() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            torch.mm(a, b)
        return 1e6 * (time.perf_counter() - begin) / count

    with ThreadPoolExecutor(1) as thread:
        found = [thread.submit(once).result() for _ in range(repeats + 1)][1:]
        thread.submit(release_team).result()
    return min(found), statistics.median(found), max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    work = torch.ones(1 << 20)
    done: list[Row] = []
    print("product            beside an idle team          alone   (µs, min / median / max)")
    for shape in SHAPES:
        work.sqrt()  # the first thread computes, and keeps its team
        beside = micros(shape, options.repeats)
        release_team()
        alone = micros(shape, options.repeats)
        done.append(Row(shape, options.threads, beside, alone))
        told = [" / ".join(f"{x:,.0f}" for x in side) for side in (beside, alone)]
        print(f"{' × '.join(map(str, shape)):18} {told[0]:>20} {told[1]:>20}", flush=True)
    save(options.json, done)


if __name__ == "__main__":
    main()
