"""What every run does alike: it ends once, for all who wait, and giving up keeps what exists."""

import asyncio
import gc
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.engine.protocol import EngineError, Queued, Request
from rolltree.engine.run import ToldRun
from rolltree.engine.samples import cut, join, nothing
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.tree.node import Top

REQUEST = Request(np.array([1, 2], np.int32))


class Told(ToldRun):
    """A run whose halt ends it with what it was told."""

    def _halt(self, finish):
        self.end(join([*self._parts, nothing(finish)]))


def whole(n=12, k=2):
    engine = TabularEngine(lambda p: [0.2, 0.3, 0.5], Letters("abc"))

    async def go():
        return await engine.submit(Request(np.array([0]), want=frozenset({"entropy", f"top:{k}"})))

    return cut(asyncio.run(go()), 0, n)


SAMPLE = whole()


def test_all_who_iterate_and_wait_get_the_same():
    parts = [cut(SAMPLE, i, i + 4) for i in range(0, 12, 4)]

    async def go():
        run = Told(REQUEST)
        assert isinstance(run, Queued)

        async def hear():
            return [part async for part in run]

        early, waiting = asyncio.ensure_future(hear()), asyncio.ensure_future(run)
        for part in parts[:2]:
            run.tell(part)
            await asyncio.sleep(0)
        late = asyncio.ensure_future(hear())
        run.end(SAMPLE, parts[2])
        run.end(nothing("abort"), parts[2])
        run.settle(ValueError("too late"))
        run.stop()
        assert [len(p.actions) for p in await early] == [len(p.actions) for p in await late] == [4, 4, 4]
        assert np.array_equal(join(await late).actions, (await waiting).actions)
        assert (await run).finish == SAMPLE.finish

    asyncio.run(go())


def test_giving_up_ends_it_for_everybody_with_what_exists():
    async def go():
        run = Told(REQUEST)
        run.tell(cut(SAMPLE, 0, 2))
        gives_up, stays = asyncio.ensure_future(run), asyncio.ensure_future(run)
        await asyncio.sleep(0)
        gives_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gives_up
        for sample in (await stays, await run):
            assert (sample.finish, len(sample.actions)) == ("abort", 2)

    asyncio.run(go())


async def listen(run, heard):
    async for part in run:
        heard.append(len(part.actions))


def test_a_failure_reaches_whoever_asks_and_nobody_else():
    async def go():
        unheard = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
        run, alone = Told(REQUEST), Told(REQUEST)
        run.tell(cut(SAMPLE, 0, 2))
        for broken in (run, alone):
            broken.settle(EngineError("gone"))
            broken.stop()
        heard = []
        for _ in range(2):
            with pytest.raises(EngineError, match="gone"):
                await run
            with pytest.raises(EngineError, match="gone"):
                await listen(run, heard)
        assert heard == [2, 2]
        del run, alone, broken
        gc.collect()
        await asyncio.sleep(0)
        assert not unheard

    asyncio.run(go())


@given(st.randoms(use_true_random=False))
def test_a_sample_is_the_sum_of_its_cuts(rng: random.Random):
    edges = sorted({0, len(SAMPLE.actions), *(rng.randrange(len(SAMPLE.actions)) for _ in range(3))})
    again = join([cut(SAMPLE, a, b) for a, b in itertools.pairwise(edges)])
    for name in ("actions", "logp", "sampling_logprob", "version", "entropy"):
        assert np.array_equal(getattr(SAMPLE, name), getattr(again, name)), name
    assert isinstance(again.top, Top)
    assert isinstance(SAMPLE.top, Top)
    assert np.array_equal(again.top.ids, SAMPLE.top.ids)
    assert (again.finish, again.prefilled) == (SAMPLE.finish, SAMPLE.prefilled)
