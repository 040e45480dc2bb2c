"""What it costs that the local engine drops kept prefixes and the width of its memory between steps.

One step = 16 prompts, 8 rollouts each, 24 tokens. With `forget` as it is before each, against the same engine that
keeps what it has; taken in turns in one process.   python -m benchmarks.forget
"""

from __future__ import annotations

import asyncio
import statistics
import time

import numpy as np
import torch

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy.load import load_model

STEPS = 12


async def _step(engine: LocalEngine, seed: int, prefixes: list[np.ndarray]) -> float:
    began = time.perf_counter()
    asked = [
        Request(prefix, Sampling(max_tokens=24, ignore_eos=True, seed=seed * 1000 + i), affinity=str(n))
        for n, prefix in enumerate(prefixes)
        for i in range(8)
    ]
    await asyncio.gather(*(engine.submit(request) for request in asked))
    return time.perf_counter() - began


async def _main() -> None:
    torch.set_num_threads(1)
    loaded = load_model("nano")
    rng, ratios = np.random.default_rng(0), list[float]()
    one, other = (LocalEngine(loaded.model, loaded.codec, seed=0) for _ in range(2))
    for seed in range(STEPS):
        # New prompts, as every step has: nothing kept of the last ones helps.
        prefixes = [rng.integers(1, loaded.codec.vocab_size, 24).astype(np.int32) for _ in range(16)]
        await one.forget()
        pair = [await _step(engine, seed, prefixes) for engine in ((one, other) if seed % 2 else (other, one))]
        forgets, keeps = pair if seed % 2 else pair[::-1]
        ratios.append(forgets / keeps)
    await asyncio.gather(one.close(), other.close())
    low, middle, high = statistics.quantiles(ratios[2:], n=4)
    print(f"a step after forgetting takes {middle:.2f} times as long (half of them {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    asyncio.run(_main())
