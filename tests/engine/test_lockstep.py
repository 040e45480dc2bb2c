"""Lockstep: however fast each thread is, requests come at the same step and share a batch with the same others."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sampling
from tests.engine import tiny

DIALOGUES, TURNS = 6, 6


def at_odd_speed(engine: LocalEngine, rng: random.Random) -> list[tuple[str, ...]]:
    """Make each step of an engine, and each of its orders, take another time; returns who is in the batch at each."""
    core, seen = engine._worker.core, list[tuple[str, ...]]()  # pyright: ignore[reportPrivateUsage]
    step = core.step

    def slow() -> Any:
        sum(range(rng.randrange(60_000)))
        seen.append(tuple(str(run.request.affinity) for run in (*core.queue, *core.batch.runs)))
        return step()

    core.step = slow  # type: ignore[method-assign]
    return seen


async def dialogue(name: str, engines: list[LocalEngine]) -> None:
    """Engines answer each other in turns; replies are of different lengths, and some take some turns of the loop."""
    text = np.arange(1, 4 + int(name))
    for turn in range(TURNS):
        for _ in range((int(name) * turn) % 5):
            await asyncio.sleep(0)
        sampling = Sampling(max_tokens=1 + (int(name) + turn) % 3, seed=turn, ignore_eos=True)
        sample = await engines[turn % len(engines)].submit(Request(text, sampling, affinity=name))
        text = np.append(text, sample.actions)


def batches(seed: int, count: int) -> list[list[tuple[str, ...]]]:
    rng, model = random.Random(seed), tiny.llama()
    engines = [LocalEngine(model, tiny.Letters(), lockstep=True)]
    engines += [LocalEngine(model, tiny.Letters(), beside=engines[0]) for _ in range(count - 1)]
    seen = [at_odd_speed(engine, rng) for engine in engines]

    async def talk() -> None:
        await asyncio.gather(*(dialogue(str(n), engines) for n in range(DIALOGUES)))
        for engine in engines:
            await engine.close()

    asyncio.run(asyncio.wait_for(talk(), 60))
    return seen


@pytest.mark.parametrize("count", [1, 2, 3])
def test_batches_are_the_same_however_fast_the_threads_are(count: int) -> None:
    first, *others = (batches(seed, count) for seed in range(4))
    assert all(len(steps) > 3 for steps in first)
    for other in others:
        assert other == first


def test_an_engine_in_turns_ends_while_another_one_computes() -> None:
    engines = [LocalEngine(tiny.llama(), tiny.Letters(), lockstep=True)]
    engines.append(LocalEngine(tiny.llama(), tiny.Letters(), beside=engines[0]))
    request = Request(np.array([1, 2]), Sampling(max_tokens=30, ignore_eos=True))

    async def scenario() -> list[int]:
        runs = [engine.submit(request) for engine in engines for _ in range(3)]
        await asyncio.sleep(0)
        await engines[0].pause()
        await engines[1].close()
        await engines[0].resume()
        return [len((await run).actions) for run in runs]

    lengths = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert lengths[:3] == [30] * 3
    assert max(lengths[3:]) <= 30
