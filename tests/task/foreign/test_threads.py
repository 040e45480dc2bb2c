"""Blocking calls beside the loop: in order while quick, never behind one that hangs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rolltree.task.foreign.threads import awaited, beside
from rolltree.task.items import TaskError


def test_calls_are_not_held_up_by_one_that_hangs():
    never, order = threading.Event(), []

    async def go():
        stuck = asyncio.ensure_future(beside(never.wait))
        quick = await asyncio.gather(*(beside(lambda i=i: order.append(i) or i) for i in range(20)))
        assert not stuck.done()
        stuck.cancel()
        return quick

    assert asyncio.run(asyncio.wait_for(go(), 60)) == list(range(20))
    assert sorted(order) == list(range(20))
    never.set()


def test_whatever_a_call_raises_reaches_the_caller():
    def stop():
        raise StopIteration

    async def go():
        for call, kind in ((lambda: 1 / 0, ZeroDivisionError), (stop, RuntimeError), (exit, TaskError)):
            with pytest.raises(kind):
                await beside(call)

    asyncio.run(go())


def test_asynchronous_tools_share_one_loop():
    async def where():
        return id(asyncio.get_running_loop())

    async def go():
        return {await beside(lambda: awaited(where())) for _ in range(3)}

    assert len(asyncio.run(go()) | asyncio.run(go())) == 1
