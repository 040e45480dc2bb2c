"""Prefixes that go with the work: what a shrink saves, what a new engine finds, and faults that cost only a prefill."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import numpy as np
import pytest

from rolltree.cluster import Health, PoolEngine
from rolltree.cluster.errors import LostError
from rolltree.cluster.hub import Hub
from rolltree.cluster.prefixes import SeenPrefixes
from rolltree.cluster.run import PoolRun
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError, Request, Sample, Sampling
from tests.cluster.inprocess import InProcess, Process
from tests.cluster.test_faults import Gate, _first
from tests.engine import tiny

RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(1, 20, 64).astype(np.int32) for _ in range(4)]


def asked(count: int = 16, tokens: int = 40) -> list[Request]:
    """Groups of four on four prompts."""
    sampling = [Sampling(max_tokens=tokens, ignore_eos=True, seed=seed) for seed in range(count)]
    return [Request(PROMPTS[i // 4 % 4], s, affinity=str(i // 4 % 4)) for i, s in enumerate(sampling)]


def paced(model: Any = None, **knobs: Any) -> LocalEngine:
    """An engine that stops once by itself after ten steps, so that nothing ends before the pool is paused."""
    engine = tiny.engine(model, max_tokens_in_memory=1 << 14, **knobs)
    worker = engine._worker
    step, left = worker.core.step, itertools.count(-9)

    def counted() -> Any:
        news = step()
        if next(left) == 0:
            worker.paused = True
        return news

    worker.core.step = counted  # type: ignore[method-assign]
    return engine


def at_first(size: int) -> Callable[[], LocalEngine]:
    """Makes engines of which the first ones stop by themselves, and later ones do not."""
    made = itertools.count()
    return lambda: paced() if next(made) < size else tiny.engine(max_tokens_in_memory=1 << 14)


class Between(InProcess):
    """Something happens when prefixes are exported, or arrive."""

    def __init__(self, method: str, do: Callable[[Process], Any]) -> None:
        super().__init__()
        self.method, self.do = method, do

    def spawn(self, kind: Callable[..., Any], *args: Any) -> Process:
        process = super().spawn(kind, *args)
        call = process.call

        async def watched(method: str, *args: Any) -> Any:
            if method == self.method:
                await self.do(process)
            return await call(method, *args)

        process.call = watched  # type: ignore[method-assign]
        return process


def in_pool(
    work: Callable[[PoolEngine], Coroutine[Any, Any, Any]], size: int = 2, transport: InProcess | None = None,
    make: Callable[[], Any] | None = None, **knobs: Any,
) -> Any:  # fmt: skip
    async def main() -> Any:
        pool = PoolEngine(make or at_first(size), size, transport or InProcess(), latency=0.0005, follow=True, **knobs)
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(main())


def hub_of(pool: PoolEngine) -> Hub:
    return pool._hub


async def begun(pool: PoolEngine, requests: list[Request]) -> list[PoolRun]:
    """Requests that have each written ten tokens, in a pool that is paused then."""
    runs = [pool.submit(request) for request in requests]
    for run in runs:
        await _first(run, 10)
    await pool.pause()
    return runs


async def shrunk(pool: PoolEngine, to: int = 1) -> tuple[list[Sample], Health]:
    """What came of requests in the middle of which the pool shrank."""
    runs = await begun(pool, asked())
    await pool.resize(to)
    await pool.resume()
    samples = await asyncio.gather(*runs)
    return list(samples), pool.health


def truth() -> list[Sample]:
    async def work(pool: PoolEngine) -> Any:
        return await asyncio.gather(*map(pool.submit, asked()))

    return in_pool(work, size=1, make=tiny.engine)


def same(samples: list[Sample]) -> bool:
    return all(
        np.array_equal(got.actions, expected.actions)
        and np.allclose(got.logp, expected.logp, atol=1e-5)
        and got.finish == expected.finish
        for got, expected in zip(samples, truth(), strict=True)
    )


@pytest.mark.parametrize("size", [2, 3])
def test_a_shrink_reads_no_text_again_and_changes_no_token(size: int) -> None:
    with_it, health = in_pool(shrunk, size=size)
    without, bare = in_pool(shrunk, size=size, handover=0)
    assert same(with_it)
    assert same(without)
    assert health.moved == bare.moved > 0
    assert health.handed_tokens > 0
    assert health.handed_bytes > 4 * health.handed_tokens
    assert health.not_handed == bare.not_handed == {}
    assert (bare.handed_prefixes, bare.handed_tokens, bare.spared) == (0, 0, 0)
    # Each token counts once, though several requests of one step would each have read it.
    paid = [sum(sample.prefilled for sample in samples) for samples in (with_it, without)]
    assert health.handed_tokens == health.spared
    assert paid[1] - paid[0] >= health.spared > 0
    # One token of each request that moved: the last one it wrote, which nobody had read.
    assert paid[0] == sum(len(p) for p in PROMPTS) + health.moved


def test_what_will_be_asked_for_comes_along_with_no_request_at_work() -> None:
    async def work(pool: PoolEngine) -> None:
        first = await asyncio.gather(*(pool.submit(request) for request in asked(8)))
        before = [hub_of(pool)._router.choose(name, dict.fromkeys(hub_of(pool).replicas.members, 0)) for name in "01"]
        assert len(set(before)) == 2
        await pool.resize(1)
        assert pool.health.moved == 0
        for sample, request in zip(first, asked(8), strict=True):
            turn = np.concatenate([request.prefix, sample.actions, [5, 6]])
            got = await pool.submit(Request(turn, Sampling(max_tokens=2, seed=1), affinity=request.affinity))
            assert got.prefilled == 3

    in_pool(work, make=partial(tiny.engine, max_tokens_in_memory=1 << 14))


def test_a_new_engine_has_what_most_requests_begin_with() -> None:
    async def work(pool: PoolEngine) -> tuple[int, Health]:
        runs = await begun(pool, asked(4) * 4)
        await pool.resize(2)
        await pool.resume()
        late = [pool.submit(request) for request in asked(4) * 2]
        await asyncio.sleep(0)
        await asyncio.gather(*runs)
        samples = await asyncio.gather(*late)
        return sum(sample.prefilled for sample in samples), pool.health

    paid, health = in_pool(work, size=1)
    without, _ = in_pool(work, size=1, handover=0)
    assert health.handed_prefixes == 1
    assert health.handed_tokens == 64
    assert health.spared == without - paid == 63
    assert health.not_handed == {}


def test_engines_that_hand_nothing_over_are_asked_for_nothing() -> None:
    gate = Gate(10)

    async def work(pool: PoolEngine) -> Health:
        runs = [pool.submit(request) for request in asked(8)]
        async for _ in runs[0]:
            break
        await pool.resize(1)
        gate.open = True
        assert all(len(sample.actions) == 40 for sample in await asyncio.gather(*runs))
        return pool.health

    health = in_pool(work, make=gate.engine)
    assert (health.handed_tokens, health.not_handed) == (0, {})
    assert health.moved > 0


# -- faults ----------------------------------------------------------------------------------------------------------


async def _kill(process: Process) -> None:
    process.kill()


async def _fails(process: Process) -> None:
    raise ValueError("torn")


@pytest.mark.parametrize(
    ("method", "do", "why"),
    [
        ("known", _kill, "lost"),
        ("export", _kill, "lost"),
        ("export", _fails, "ValueError"),
        ("take_over", _kill, "lost"),
        ("take_over", _fails, "ValueError"),
    ],
)
def test_a_hand_over_that_breaks_costs_only_a_prefill(method: str, do: Any, why: str) -> None:
    samples, health = in_pool(shrunk, size=3, transport=Between(method, do))
    assert same(samples)
    assert health.in_flight == 0
    assert set(health.not_handed) == {why}
    assert health.handed_tokens == health.spared == 0


@pytest.mark.parametrize("method", ["known", "export", "take_over"])
def test_a_death_counts_although_the_engines_listener_hears_it_later(method: str) -> None:
    dead = list[Process]()

    async def dies(process: Process) -> None:
        if not dead:
            dead.append(process)
            process.dead = True  # the call for news that is under way stays without an answer

    samples, health = in_pool(shrunk, size=3, transport=Between(method, dies))
    assert same(samples)
    assert (health.lost, health.in_flight) == (1, 0)
    assert health.not_handed["lost"] >= 1


def test_a_hand_over_that_hangs_is_given_up() -> None:
    async def hangs(process: Process) -> None:
        await asyncio.Event().wait()

    samples, health = in_pool(shrunk, transport=Between("export", hangs), handover=0.01)
    assert same(samples)
    assert health.not_handed == {"late": 1}


def test_other_weights_are_refused_with_the_reason() -> None:
    made = itertools.count()

    def make() -> LocalEngine:
        return paced(tiny.llama(seed=next(made)))

    samples, health = in_pool(shrunk, make=make)
    assert all(len(sample.actions) == 40 for sample in samples)
    assert health.not_handed == {"weights": 1}
    assert health.handed_tokens == 0


class Held:
    """A hand-over that waits until it is let on."""

    def __init__(self) -> None:
        self.reached, self.on = asyncio.Event(), asyncio.Event()

    async def __call__(self, process: Process) -> None:
        self.reached.set()
        await self.on.wait()


def between(work: Callable[[PoolEngine, list[PoolRun], Held], Coroutine[Any, Any, None]]) -> None:
    """Work while requests are in no engine: ended in one, and their prefixes on the way to another."""

    async def main(pool: PoolEngine) -> None:
        runs = await begun(pool, asked())
        shrinking = asyncio.ensure_future(pool.resize(1))
        await seen(pool, transport.do.reached)
        await work(pool, runs, transport.do)
        pool._loop.call_soon_threadsafe(transport.do.on.set)
        await shrinking

    transport: Any = Between("export", Held())
    in_pool(main, transport=transport)


async def seen(pool: PoolEngine, event: asyncio.Event) -> None:
    """An event of the pool's own loop."""
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(event.wait(), pool._loop))


def test_requests_between_two_engines_are_counted_and_can_be_stopped() -> None:
    async def work(pool: PoolEngine, runs: list[PoolRun], held: Held) -> None:
        assert sum(pool.health.loads) == 8
        assert pool.health.in_flight == 16
        jobs = {job.number for job in hub_of(pool).handovers.held}
        assert len(jobs) == 8
        run = next(run for number, run in enumerate(runs) if number in jobs)
        run.stop("budget")
        got = await run
        assert got.finish == "budget"
        assert len(got.actions) > 0
        assert pool.health.in_flight == 15
        pool._loop.call_soon_threadsafe(held.on.set)
        await pool.resume()
        others = await asyncio.gather(*(other for other in runs if other is not run))
        assert all(len(sample.actions) == 40 for sample in others)

    between(work)


def test_requests_between_two_engines_end_with_the_pool() -> None:
    async def work(pool: PoolEngine, runs: list[PoolRun], held: Held) -> None:
        await pool.close()
        ended = await asyncio.gather(*runs)
        assert all(sample.finish == "abort" and len(sample.actions) for sample in ended)
        with pytest.raises(EngineError, match="closed"):
            pool.submit(asked(1)[0])

    async def main(pool: PoolEngine) -> None:
        runs = await begun(pool, asked())
        shrinking = asyncio.ensure_future(pool.resize(1))
        await seen(pool, transport.do.reached)
        await work(pool, runs, transport.do)
        shrinking.cancel()

    transport: Any = Between("export", Held())
    in_pool(main, transport=transport)


def test_weights_that_change_meanwhile_refuse_what_was_read_under_others() -> None:
    async def work(pool: PoolEngine, runs: list[PoolRun], held: Held) -> None:
        await pool.update_weights(tiny.llama().state_dict(), 1)
        pool._loop.call_soon_threadsafe(held.on.set)
        await pool.resume()
        samples = await asyncio.gather(*runs)
        assert all(len(sample.actions) == 40 and sample.version[-1] == 1 for sample in samples)

    between(work)


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_one_resize_at_a_time_and_each_stands_when_it_returns() -> None:
    async def work(pool: PoolEngine) -> list[Sample]:
        hub = hub_of(pool)
        runs = await begun(pool, asked())

        async def to(size: int) -> tuple[int, int, int]:
            await hub.resize(size)
            return size, len(hub.replicas.members), len(hub.replicas.leaving)

        async def all_at_once() -> list[tuple[int, int, int]]:
            return await asyncio.gather(*map(to, (1, 4, 2, 3, 1, 2)))

        sizes = asyncio.run_coroutine_threadsafe(all_at_once(), pool._loop)
        assert await asyncio.wrap_future(sizes) == [(size, size, 0) for size in (1, 4, 2, 3, 1, 2)]
        await pool.resume()
        return list(await asyncio.gather(*runs))

    assert same(in_pool(work, size=3))


def test_a_prompt_is_what_all_requests_of_a_tree_begin_with() -> None:
    seen = SeenPrefixes()
    for name, prefix in (("a", [1, 2, 3, 4]), ("a", [1, 2, 3, 5, 6]), ("b", [7, 8]), ("", [1]), ("c", [1]), ("c", [2])):
        seen.note(Request(np.array(prefix, np.int32), affinity=name))
    assert seen.names == ["b", "a"]
    assert [text.tolist() for text in seen.texts(["a", "b", "c", "d"])] == [[1, 2, 3], [7, 8]]
    assert [text.tolist() for text in seen.hottest()] == [[1, 2, 3]]


def test_a_lost_process_says_so() -> None:
    async def main() -> None:
        process = InProcess().spawn(lambda: None)
        process.kill()
        with pytest.raises(LostError):
            await process.parted("export")

    asyncio.run(main())
