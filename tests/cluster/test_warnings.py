"""What goes wrong in a pool without an end is named: processes that say nothing, engines that stand, no room."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import numpy as np
import pytest

from rolltree.cluster import host
from rolltree.cluster.errors import LostError
from rolltree.cluster.hub import Hub
from rolltree.cluster.member import Member
from rolltree.cluster.pool import PoolEngine
from rolltree.engine.protocol import Request, Sampling
from rolltree.engine.run import SILENCE
from rolltree.testing.tiny import tiny_engine
from tests.cluster.inprocess import InProcess, Process

LONG = Request(np.array([3, 1, 4], np.int32), Sampling(max_tokens=60, ignore_eos=True, seed=1))
ENGINE = logging.getLogger("rolltree.engine")
pytestmark = pytest.mark.usefixtures("engine_log")


class Elsewhere(InProcess):
    """Processes that say they have another number than the pool's, and may be stopped."""

    def spawn(self, kind: Any, *args: Any) -> Process:
        process = super().spawn(kind, *args)
        call, process.stopped = process.call, asyncio.Event()  # type: ignore[attr-defined]

        async def other(method: str, *args: Any) -> Any:
            answer = await call(method, *args)
            if process.stopped.is_set():  # type: ignore[attr-defined]
                await process.killed.wait()
                raise LostError("the process was killed")
            if method == "open":
                object.__setattr__(answer, "pid", os.getpid() + 1)
            return answer

        process.call = other  # type: ignore[method-assign]
        return process


async def until(there: Any) -> None:
    async with asyncio.timeout(300):
        while not there():
            await asyncio.sleep(0)


def said_after(watched: Member | Hub, seconds: float) -> None:
    """Look as the watchdog would after so many seconds."""
    dog: Any = watched.watchdog
    now = dog._now
    dog.look()
    dog._now = lambda: now() + seconds
    dog.look()


def test_warnings_of_an_engine_in_another_process_are_heard_here_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        pool = PoolEngine(tiny_engine, 1, Elsewhere(), latency=0.0005)
        await pool.submit(LONG)
        ENGINE.warning("No progress for 130 s: the engine there.")
        await until(lambda: any("process" in said for said in caplog.messages))
        await pool.submit(LONG)
        await pool.close()
        ENGINE.warning("after the end")

    with caplog.at_level(logging.WARNING, "rolltree"):
        asyncio.run(main())
    passed_on = [r.getMessage() for r in caplog.records if r.name == "rolltree.cluster"]
    assert passed_on[0] == f"The engine in process {os.getpid() + 1}: No progress for 130 s: the engine there."


def test_an_engine_in_the_pools_own_process_is_not_heard_twice(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        pool = PoolEngine(tiny_engine, 1, InProcess(), latency=0.0005)
        ENGINE.warning("a word")
        await pool.submit(LONG)
        await pool.close()

    with caplog.at_level(logging.WARNING, "rolltree"):
        asyncio.run(main())
    assert caplog.messages == ["a word"]


def test_a_process_that_says_nothing_is_named_and_one_that_lives_is_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "BEAT", 0.001)

    async def main() -> None:
        transport = Elsewhere()
        pool = PoolEngine(tiny_engine, 1, transport, latency=0.0005)
        hub: Hub = pool._hub  # pyright: ignore[reportPrivateUsage]
        (member,) = hub.replicas.members
        await pool.pause()
        run = pool.submit(LONG)
        await until(lambda: member.jobs)
        before = member.at_work()
        await until(lambda: member.at_work() != before)  # nothing is written, and yet it is heard
        transport.processes[0].stopped.set()  # type: ignore[attr-defined]
        said_after(member, SILENCE + 1)
        pool._loop.call_soon_threadsafe(transport.processes[0].kill)
        await until(lambda: hub.health.lost == 1)
        await pool.resume()
        assert len((await run).actions) == 60
        await pool.close()

    with caplog.at_level(logging.WARNING, "rolltree"):
        asyncio.run(main())
    (said,) = caplog.messages
    assert said.startswith(
        f"No progress for {SILENCE + 1:.0f} s: the engine in process {os.getpid() + 1} has 1 requests"
    )


def test_requests_that_wait_where_no_engine_is_left_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        transport = InProcess()
        pool = PoolEngine(tiny_engine, 1, transport, latency=0.0005)
        hub: Hub = pool._hub  # pyright: ignore[reportPrivateUsage]
        room, spawn = asyncio.Event(), transport.spawn

        def full(kind: Any, *args: Any) -> Process:
            process = spawn(kind, *args)
            call = process.call

            async def later(method: str, *args: Any) -> Any:
                await until(room.is_set)
                return await call(method, *args)

            process.call = later  # type: ignore[method-assign]
            return process

        transport.spawn = full  # type: ignore[method-assign]
        pool._loop.call_soon_threadsafe(transport.processes[0].kill)
        run = pool.submit(LONG)
        await until(lambda: hub.at_work() is not None)
        said_after(hub, SILENCE + 1)
        room.set()
        assert len((await run).actions) == 60
        assert hub.at_work() is None
        await pool.close()

    with caplog.at_level(logging.WARNING, "rolltree"):
        asyncio.run(main())
    assert [m.partition(": ")[2].partition(" (")[0] for m in caplog.messages] == [
        "1 requests wait for an engine of the pool, and none is at work"
    ]
