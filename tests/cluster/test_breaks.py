"""What raises where nobody foresaw it, in an engine, on the way to one or in the pool itself: every request ends."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rolltree.cluster import PoolEngine
from rolltree.cluster.errors import LostError
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.testing.tiny import policy, tiny_engine
from tests.cluster.inprocess import InProcess, Process
from tests.cluster.test_faults import LONG, PREFIX

PATIENCE = 300.0
"""Seconds after which a request hangs; none comes near."""
SHORT = replace(LONG, max_tokens=5)


class Unread:
    """Can be written down and not read."""

    def __call__(self, so_far: Any, logits: Any) -> Any:
        return logits

    def __reduce__(self) -> Any:
        return _no, ()


class Unwritten(Unread):
    """Cannot even be written down, in a way of its own."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not now")


def _no() -> Any:
    raise ModuleNotFoundError("no module named mine")


class Wire(InProcess):
    """Orders travel as bytes, as they do between machines."""

    def spawn(self, kind: Callable[..., Any], *args: Any) -> Process:
        process = super().spawn(kind, *args)
        process.pack = pickle.dumps  # pyright: ignore[reportAttributeAccessIssue]
        return process


def in_pool(work: Callable[[PoolEngine, InProcess], Coroutine[Any, Any, Any]], size: int = 2, **knobs: Any) -> Any:
    async def main() -> Any:
        transport = knobs.pop("transport", InProcess)()
        pool = PoolEngine(knobs.pop("make", tiny_engine), size, transport, latency=0.0005, **knobs)
        try:
            return await asyncio.wait_for(work(pool, transport), PATIENCE)
        finally:
            await pool.close()

    return asyncio.run(main())


def same(pool: PoolEngine) -> Coroutine[Any, Any, Any]:
    async def ask() -> Any:
        got = await pool.submit(Request(PREFIX, SHORT))
        want = await tiny_engine().submit(Request(PREFIX, SHORT))
        assert np.array_equal(got.actions, want.actions)

    return ask()


@pytest.mark.parametrize(("hook", "says"), [(Unread(), "cannot be read .* no module named mine"),
                                            (Unwritten(), "cannot be sent .* not now")])  # fmt: skip
def test_a_request_that_cannot_travel_ends_alone(hook: Any, says: str) -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        asked = [pool.submit(Request(PREFIX, replace(SHORT, hook=h))) for h in (None, hook, None)]
        first, bad, last = await asyncio.gather(*asked, return_exceptions=True)
        with pytest.raises(EngineError, match=says):
            raise bad
        assert len(first.actions) == len(last.actions) == 5
        assert pool.health.lost == pool.health.in_flight == 0

    in_pool(work, transport=Wire)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, MemoryError])
def test_whatever_an_engine_raises_its_requests_end_and_the_others_go_on(kind: type[BaseException]) -> None:
    def broken() -> Any:
        engine = tiny_engine()
        submit, score = engine.submit, engine.score

        class Broken:
            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def submit(self, request: Request) -> Any:
                if request.sampling.max_tokens == 7:
                    raise kind("broken")
                return submit(request)

            async def score(self, tokens: Any, start: int, want: Any = frozenset()) -> Any:
                if start == 2:
                    raise kind("broken")
                return await score(tokens, start, want)

        return Broken()

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        bad, good = pool.submit(Request(PREFIX, replace(SHORT, max_tokens=7))), pool.submit(Request(PREFIX, SHORT))
        assert len((await good).actions) == 5
        for waiting in (bad, pool.score(PREFIX, 2)):
            with pytest.raises(Exception, match="broken"):
                await waiting
        await pool.score(PREFIX, 1)
        assert pool.health.lost == pool.health.in_flight == 0

    in_pool(work, make=broken)


def test_a_request_that_kills_whoever_is_sent_it_fails_in_the_end() -> None:
    """Also one that kills its process before the process can say that it has it."""

    class Deadly(InProcess):
        def spawn(self, kind: Callable[..., Any], *args: Any) -> Process:
            process = super().spawn(kind, *args)
            call = process.call

            async def deadly(method: str, *args: Any) -> Any:
                if method == "take" and any(o.request.sampling.max_tokens == 7 for _, o in args[0]):
                    process.kill()
                    raise LostError("it died of that")
                return await call(method, *args)

            process.call = deadly  # pyright: ignore[reportAttributeAccessIssue]
            return process

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        with pytest.raises(EngineError, match="engines died with this request"):
            await pool.submit(Request(PREFIX, replace(SHORT, max_tokens=7)))
        await same(pool)

    in_pool(work, transport=Deadly, lives=1)


@pytest.mark.parametrize("turns", range(6))
def test_an_update_that_its_caller_gives_up_leaves_no_engine_paused(turns: int) -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        update = asyncio.ensure_future(pool.update_weights(lambda prefix: policy(prefix)[::-1], 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        update.cancel()
        await asyncio.gather(update, return_exceptions=True)
        got = await pool.submit(Request(PREFIX, LONG))
        await pool.update_weights(policy, 2)
        assert len(got.actions) == 60
        assert len({int(v) for v in got.version}) == 1 or int(got.version[-1]) == 1
        await same(pool)

    in_pool(work)


def test_weights_that_break_every_engine_are_refused_and_the_old_ones_stay() -> None:
    def fragile() -> Any:
        engine = tiny_engine()
        update = engine.update_weights

        async def broken(weights: Any, version: int, **how: Any) -> None:
            if version == 1:
                raise RuntimeError("size mismatch")
            await update(weights, version, **how)

        engine.update_weights = broken
        return engine

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        with pytest.raises(EngineError, match="size mismatch"):
            await pool.update_weights(policy, 1)
        assert pool.version == 0
        await same(pool)
        await pool.update_weights(policy, 2)
        assert pool.version == 2
        await same(pool)

    in_pool(work, make=fragile)


def test_engines_that_fail_to_start_in_the_same_moment_leave_nobody_waiting() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        transport.refuse = 100
        for process in transport.alive:
            pool._loop.call_soon_threadsafe(process.kill)
        asked = [pool.submit(Request(PREFIX, Sampling(max_tokens=60, seed=s))) for s in range(8)]
        got = await asyncio.gather(*asked, return_exceptions=True)
        assert any(isinstance(one, EngineError) for one in got)
        transport.refuse = 0
        await same(pool)

    in_pool(work, size=4)
