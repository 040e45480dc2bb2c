"""Load on the engines: requests, streams, cancellations, stops, pauses, updates and faults, all at once.

Promised: every request ends, with a sample or an EngineError; a sample is whole; memory does not grow from case to
case; an engine that was attacked still answers.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError, Generation, Request, Sample, Sampling
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.search.bestof import BestOf
from rolltree.generate.searched import SearchedEngine
from tests.attack.frame import Attack, BrokenPromiseError

REQUESTS = 100
"""Requests of one case."""
PATIENCE = 120.0
"""Seconds after which a request hangs."""
GROWTH = 64 << 20
"""Most bytes by which a process may grow over all cases after the first few."""
_SETTLED = 5
_RAISED = (RuntimeError("fault"), MemoryError("fault"), KeyboardInterrupt(), StopIteration(), ValueError("fault"),
           RuntimeError("DefaultCPUAllocator: can't allocate memory"), asyncio.CancelledError())  # fmt: skip
VOCAB = 24


def _fault(rng: random.Random) -> BaseException:
    """A fresh one: an exception raised again and again keeps the frames of every time, and all that they hold."""
    fault = rng.choice(_RAISED)
    return type(fault)(*fault.args)


class _Codec:
    vocab_size, eos_id = VOCAB, 0

    def encode(self, text: str) -> list[int]:
        return [1 + ord(c) % (VOCAB - 1) for c in text]

    def decode(self, ids: Any) -> str:
        return "".join("_abcdefghijklmnopqrstuvwx"[int(i)] for i in ids if int(i))


@functools.cache
def _model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=96, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


class _Faulty:
    """Stands before a decoder and raises now and then."""

    def __init__(self, decoder: Any, rng: random.Random, rate: float) -> None:
        self._decoder, self._rng, self.rate = decoder, rng, rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def extend(self, *args: Any) -> Any:
        if self._rng.random() < self.rate:
            raise _fault(self._rng)
        return self._decoder.extend(*args)

    def logits(self, hidden: Any) -> Any:
        if self._rng.random() < self.rate:
            raise _fault(self._rng)
        return self._decoder.logits(hidden)


def _hook(rng: random.Random) -> Any:
    kind = rng.randrange(4)

    def hook(so_far: Any, logits: Any) -> Any:
        if kind == 0:
            raise _fault(rng)
        return [logits, logits[:-1], logits * float("nan"), logits][kind]

    return hook


def _request(rng: random.Random, engine: Any) -> Request:
    most, vocab = rng.choice((0, 1, 3, 8, 20)), engine.codec.vocab_size
    prefix = [rng.randrange(vocab) for _ in range(rng.choice((1, 2, 5, 17, 40)))]
    s = Sampling(
        max_tokens=most, temperature=rng.choice((0.0, 0.7, 1.0)), top_k=rng.choice((0, 0, 3)), seed=rng.randrange(9),
        top_p=rng.choice((1.0, 1.0, 0.8)), ignore_eos=rng.random() < 0.7, stop=rng.choice(((), ("a",), ("ab", "c"))),
        hook=_hook(rng) if rng.random() < 0.1 else None,
    )  # fmt: skip
    want = frozenset(w for w in ("entropy", "top:2", "hidden") if rng.random() < 0.2)
    return Request(np.array(prefix, np.int32), s, want)


def _whole(request: Request, sample: Sample) -> None:
    n = len(sample.actions)
    if not len(sample.logp) == len(sample.sampling_logprob) == len(sample.version) == n <= request.sampling.max_tokens:
        raise BrokenPromiseError(f"a sample of {n} tokens has other numbers of log-probs or versions")
    if sample.top is not None and len(sample.top.ids) != n:
        raise BrokenPromiseError("a sample has alternatives of other tokens than its own")


async def _one(rng: random.Random, engine: Any, request: Request) -> str:
    """One request as somebody asks it: awaited, streamed, stopped or given up."""
    for _ in range(rng.randrange(6)):
        await asyncio.sleep(0)
    try:
        run: Generation = engine.submit(request)
    except EngineError:
        return "refused"
    how = rng.randrange(5)
    try:
        if how == 0:
            parts = [part async for part in run]
            sample = await run
            if sum(len(p.actions) for p in parts) != len(sample.actions):
                raise BrokenPromiseError("increments do not add up to the sample")
        elif how in (1, 2):
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
            if how == 1:
                run.stop()
            else:
                waiting = asyncio.ensure_future(_awaited(run))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            sample = await run
        else:
            sample = await run
    except EngineError:
        return "failed"
    _whole(request, sample)
    return "ended"


async def _awaited(run: Generation) -> Sample:
    return await run


async def _meddle(rng: random.Random, engine: Any, other: Any) -> None:
    """Pauses and updates, some of them given up."""
    for _ in range(rng.randrange(5)):
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            await engine.pause()
            await asyncio.sleep(0)
            await engine.resume()
        else:
            update = asyncio.ensure_future(
                engine.update_weights(other(rng), engine.version + 1, caches=rng.choice(("keep", "recompute")))
            )
            if rng.random() < 0.3:
                await asyncio.sleep(0)
                update.cancel()
            await asyncio.gather(update, return_exceptions=True)


async def _load(rng: random.Random, engine: Any, other: Any, calm: Any) -> str:
    work = [_one(random.Random(rng.random()), engine, _request(rng, engine)) for _ in range(REQUESTS)]
    try:
        got = await asyncio.wait_for(asyncio.gather(_meddle(rng, engine, other), *work), PATIENCE)
    except TimeoutError:
        raise BrokenPromiseError(f"requests did not end within {PATIENCE:g} s") from None
    calm()
    last = await asyncio.wait_for(engine.submit(Request(np.array([1, 2]), Sampling(max_tokens=2, ignore_eos=True))), 60)
    if len(last.actions) != 2:
        raise BrokenPromiseError("the engine does not answer any more")
    await engine.close()
    return "all ended, some failed" if "failed" in got[1:] else "all ended"


@contextmanager
def _quiet() -> Generator[None]:
    """Without the warnings that faults bring."""
    log = logging.getLogger("rolltree.engine")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _local(rng: random.Random, _: Path) -> str:
    engine = LocalEngine(
        _model(0), _Codec(), max_batch=rng.choice((1, 4, 32)), max_tokens_in_memory=rng.choice((200, 1000, 8000)),
        share_prefixes=rng.random() < 0.7, seed=0, lockstep=rng.random() < 0.2,
    )  # fmt: skip
    core = engine._worker.core  # pyright: ignore[reportPrivateUsage]
    core.decoder = faulty = _Faulty(core.decoder, random.Random(rng.random()), rng.choice((0.0, 0.0, 0.02, 0.2)))

    def calm() -> None:
        faulty.rate = 0.0

    with _quiet():
        outcome = asyncio.run(_load(rng, engine, lambda r: _model(r.randrange(3)), calm))
    _flat()
    return outcome


def _exact(rng: random.Random, _: Path) -> str:
    engine, policy = _tabular(rng)
    return asyncio.run(_load(rng, engine, lambda r: policy, lambda: None))


def _searched(rng: random.Random, _: Path) -> str:
    inner, policy = _tabular(rng)
    strategy = rng.choice((BestOf(n=3, wave=2), Independent(2)))
    engine = SearchedEngine(inner, strategy, tokens=rng.choice((None, 3, 30)))
    outcome = asyncio.run(_load(rng, engine, lambda r: policy, lambda: setattr(engine, "tokens", None)))
    _flat()
    return outcome


def _tabular(rng: random.Random) -> tuple[TabularEngine, Any]:
    def policy(prefix: tuple[int, ...]) -> list[float]:
        weights = np.array([1.0 + (sum(prefix[-2:]) * 3 + i) % 5 for i in range(7)])
        return list(weights / weights.sum())

    return TabularEngine(policy, Letters("abcdef", eos_id=6), max_context=96, shuffle=rng.choice((None, 1))), policy


_seen: list[int] = []


def _flat() -> None:
    """Memory and threads of this process do not grow from case to case."""
    _seen.append(psutil.Process().memory_info().rss)
    if len(_seen) > _SETTLED and _seen[-1] - _seen[_SETTLED - 1] > GROWTH:
        raise BrokenPromiseError(
            f"the process grew by {_seen[-1] - _seen[_SETTLED - 1]:,} bytes over {len(_seen)} cases"
        )
    if threading.active_count() > 40:
        raise BrokenPromiseError(f"{threading.active_count()} threads are left")


ATTACKS = (
    Attack("engine-local", "the local engine under load, with faults in every part", _local, 4, 200),
    Attack("engine-tabular", "the exact engine under load, with hooks that raise", _exact, 3, 50),
    Attack("engine-searched", "calls answered by searches under load, given up and stopped", _searched, 1, 50),
)
