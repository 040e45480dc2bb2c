"""Stopping again what is being stopped: the tokens that the engine made are waited for."""

from __future__ import annotations

import asyncio

from rolltree.control.schedule import preset
from rolltree.engine.protocol import Generation, Request
from rolltree.engine.tabular import TabularEngine
from rolltree.testing.faulty import Wrapped
from rolltree.testing.tiny import SpellTask
from tests.rollout.flying import new_run, tabular


class Slow(Wrapped):
    """An engine that hands over what a stopped run has some turns later."""

    def __init__(self, inner: TabularEngine) -> None:
        super().__init__(inner)
        self.asked: list[Generation] = []

    def submit(self, request: Request) -> Generation:
        self.asked.append(self.inner.submit(request))
        return _Slow(self.asked[-1])  # type: ignore[return-value]


class _Slow:
    def __init__(self, run: Generation) -> None:
        self.run, self.stop = run, run.stop

    def __await__(self):  # pyright: ignore
        sample = yield from self.run.__await__()
        for _ in range(5):
            yield
        return sample


def test_a_rollout_that_is_stopped_twice_keeps_its_tokens() -> None:
    async def run() -> tuple[int, int]:
        engine = Slow(tabular())
        executor = new_run(preset("areal"), SpellTask(), engine).executor
        executor.begin()
        for _ in range(3):
            await asyncio.sleep(0)
        rollouts = list(executor.scheduler.running.values())
        executor.abort(rollouts)
        await asyncio.sleep(0)
        executor.abort(rollouts)
        await executor.rest()
        made = sum([len((await r).actions) for r in engine.asked])
        kept = sum(len(n) for group in {r.group for r in rollouts} for n in group.item.tree if n.trainable)
        await executor.close()
        return made, kept

    made, kept = asyncio.run(run())
    assert made == kept > 0
