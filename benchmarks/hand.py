"""Scheduling alone: what hand, ledger and tree cost per node operation, with an engine that computes nothing.

    python benchmarks/hand.py [--flight 1000 10000 100000] [--repeats 3] [--json FILE]

The engine keeps every request until no new one comes, so all of them are in flight at once, and then answers each with
the same 32 tokens. Groups of eight grow from a prompt; a leaf is two operations: extended and verified. The verifier
looks at nothing. Rates are per second of processor time, so other programs on the machine do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import save

from rolltree.engine.protocol import Capabilities, Request, Sample, Scored
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Reply, Split, Verdict

TOKENS, GROUP, PROMPT = 32, 8, 20


@dataclass(frozen=True)
class Row:
    """Operations per second of processor time, over repeats."""

    flight: int
    rate_min: float
    rate_median: float
    rate_max: float


class Bytes:
    """A codec of one token per byte."""

    vocab_size = 256
    eos_id = 0

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int] | np.ndarray[Any, Any]) -> str:
        return np.asarray(ids, np.uint8).tobytes().decode("latin-1")


class Answer:
    """A run that ends when its engine says so."""

    def __init__(self) -> None:
        self.sample: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Sample]:
        return self.sample.__await__()

    async def __aiter__(self) -> AsyncIterator[Sample]:
        yield await self.sample

    def stop(self, finish: str = "abort") -> None:
        """Too late: it answers whole."""


class Virtual:
    """An engine that answers everybody once nobody asks any more."""

    def __init__(self) -> None:
        self.capabilities = Capabilities(frozenset({"stream"}), 4096)
        self.codec = Bytes()
        self.version = 0
        self.most = 0
        """Most requests that were in flight at once."""
        self._waiting: list[Answer] = []
        self._seen = 0
        array = np.zeros(TOKENS, np.float32)
        self._sample = Sample(np.full(TOKENS, 97, np.int32), array, array, np.zeros(TOKENS, np.int32), "eos")

    def submit(self, request: Request) -> Answer:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.append(Answer())
        return self._waiting[-1]

    async def score(self, tokens: Any, start: int, want: frozenset[str] = frozenset()) -> Scored:
        return Scored(np.zeros(len(tokens) - start, np.float32), 0)

    async def pause(self) -> None:
        """Nothing runs."""

    async def resume(self) -> None:
        """Nothing was paused."""

    async def update_weights(self, weights: Any, version: int, *, caches: str = "recompute") -> None:
        self.version = version

    async def close(self) -> None:
        """Nothing is held."""

    def _turn(self) -> None:
        if self._seen < len(self._waiting):
            self._seen = len(self._waiting)
            asyncio.get_running_loop().call_soon(self._turn)
            return
        self.most, self._seen = max(self.most, len(self._waiting)), 0
        ended, self._waiting = self._waiting, []
        for answer in ended:
            answer.sample.set_result(self._sample)


@dataclass(frozen=True)
class Anything:
    """A task whose every answer is right."""

    name: str = "anything"
    level: int = 0
    max_tokens: int = TOKENS
    stop: tuple[str, ...] = ()
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for i in range(1 << 62):
            yield Item(f"{split} {seed} {i}", "x" * PROMPT, True)

    def start(self, item: Item) -> tuple[Any, str | None]:
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        raise TaskError(f"task {self.name!r} has no environment (max_turns is 0), so it takes no step")

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        return Verdict(1.0)


def rate(flight: int) -> float:
    """Operations per second of processor time with that many requests in flight."""
    engine, task = Virtual(), Anything()
    source = task.items("train")
    items = [next(source) for _ in range(flight // GROUP)]
    begin = time.process_time()
    forest = asyncio.run(grow(Independent(GROUP), engine, task, items))
    seconds = time.process_time() - begin
    done = sum("reward" in leaf.scores for tree in forest for leaf in tree.leaves())
    if not done == engine.most == len(items) * GROUP:
        raise RuntimeError(f"{done} leaves were verified and {engine.most} in flight, of {len(items) * GROUP}")
    return 2 * done / seconds


def rows(flights: Sequence[int], repeats: int) -> Iterator[Row]:
    """One row per number in flight, after a warm-up."""
    rate(1000)
    for flight in flights:
        rates = [rate(flight) for _ in range(repeats)]
        yield Row(flight, min(rates), statistics.median(rates), max(rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flight", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    done: list[Row] = []
    print(f"{'in flight':>10}  node operations per second of processor time, min / median / max")
    for row in rows(options.flight, options.repeats):
        done.append(row)
        print(f"{row.flight:10,}  {row.rate_min:9,.0f} {row.rate_median:9,.0f} {row.rate_max:9,.0f}", flush=True)
    save(options.json, done)


if __name__ == "__main__":
    main()
