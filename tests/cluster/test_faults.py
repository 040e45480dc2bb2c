"""Engines that die at any moment change nothing that a caller sees: same forests, same accounts."""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from rolltree.cluster import ClusterError, PoolEngine
from rolltree.cluster.run import PoolRun
from rolltree.control.ledger import Budget, Limits
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError, Request, Sample, Sampling
from rolltree.engine.tabular import TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.recipe.treepo import SegmentTree
from rolltree.task.protocol import Task
from rolltree.testing.tiny import CODEC, SpellTask, Walk, policy, tiny_engine
from rolltree.tree import Forest
from tests.cluster.inprocess import InProcess
from tests.engine import tiny

PREFIX = np.array([3, 1, 4], np.int32)
LONG = Sampling(max_tokens=60, ignore_eos=True, seed=1)


def forest_of(forest: Forest) -> list[Any]:
    """All that a strategy decided and an engine wrote, in an order that does not depend on who was faster."""
    return [
        sorted(
            (leaf.status, leaf.finish, tree.prefix(leaf).tolist(), leaf.scores.get("reward")) for leaf in tree.leaves()
        )
        for tree in forest
    ]


def grown(engine: Any, strategy: Any, task: Task, budget: Budget) -> Coroutine[Any, Any, Forest]:
    items = list(itertools.islice(task.items("train"), 4))
    return grow(strategy, engine, task, items, seed=5, budget=budget)


def in_pool(work: Callable[[PoolEngine, InProcess], Coroutine[Any, Any, Any]], size: int = 3, **knobs: Any) -> Any:
    async def main() -> Any:
        transport = InProcess()
        pool = PoolEngine(knobs.pop("make", tiny_engine), size, transport, latency=0.0005, **knobs)
        try:
            return await work(pool, transport)
        finally:
            await pool.close()

    return asyncio.run(main())


async def killing(pool: PoolEngine, transport: InProcess, every: int, seed: int) -> None:
    """Kill one engine of the pool now and then, seen from its own loop."""
    rng = random.Random(seed)
    for _ in range(40):
        for _ in range(rng.randrange(1, every)):
            await asyncio.sleep(0.0005)
        alive = transport.alive
        if alive:
            pool._loop.call_soon_threadsafe(rng.choice(alive).kill)


@pytest.mark.parametrize("follow", [False, True], ids=["ends", "follow"])
@pytest.mark.parametrize("shape", ["independent", "turns", "segments"])
@pytest.mark.parametrize("seed", range(2))
def test_a_forest_grown_among_deaths_is_the_one_grown_without(seed: int, shape: str, follow: bool) -> None:
    task: Task = Walk() if shape == "turns" else SpellTask()
    strategy = SegmentTree(leaves=6, segment=3) if shape == "segments" else Independent(4)

    async def alone() -> Forest:
        return await grown(tiny_engine(), strategy, task, Budget())

    async def work(pool: PoolEngine, transport: InProcess) -> tuple[Forest, Budget, int]:
        budget = Budget()
        killer = asyncio.ensure_future(killing(pool, transport, 4, seed))
        try:
            forest = await grown(pool, strategy, task, budget)
        finally:
            killer.cancel()
        return forest, budget, pool.health.lost

    forest, budget, _ = in_pool(work, follow=follow, lives=1000)
    assert forest_of(forest) == forest_of(asyncio.run(alone()))
    budget.check()
    written = sum(len(n) for tree in forest for n in tree if n.role == "policy" and not n.forced)
    assert budget.spent.decoded == written
    assert all(budget.held(resource) == 0 for resource in ("decoded", "prefilled"))


class Gate:
    """Makes engines that write so many tokens and then wait until it is opened."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.open = False

    def engine(self) -> TabularEngine:
        made = itertools.count()

        async def pace() -> None:
            await asyncio.sleep(0)
            if next(made) >= self.tokens:
                while not self.open:
                    await asyncio.sleep(0.001)

        return TabularEngine(policy, CODEC, pace=pace)


async def _first(run: Any, tokens: int) -> list[Sample]:
    """Increments until so many tokens are there."""
    parts: list[Sample] = []
    async for part in run:
        parts.append(part)
        if sum(len(p.actions) for p in parts) >= tokens:
            return parts
    return parts


@pytest.mark.parametrize("want", [frozenset(), frozenset({"entropy", "top:2", "hidden"})], ids=["plain", "extras"])
def test_a_death_in_mid_sample_costs_nothing_that_was_shown(want: frozenset[str]) -> None:
    request, gate = Request(PREFIX, LONG, want), Gate(20)

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        whole = await tiny_engine().submit(request)
        run = pool.submit(request)
        shown = await _first(run, 7)
        kill_busy(pool, transport)
        gate.open = True
        got = await run
        for name in ("actions", "logp", "sampling_logprob", "version", "entropy", "hidden"):
            assert np.array_equal(getattr(got, name), getattr(whole, name)) or getattr(whole, name) is None, name
        assert want == frozenset() or np.array_equal(got.top.ids, whole.top.ids)
        assert got.finish == whole.finish
        parts = [part.actions async for part in run]
        assert np.array_equal(np.concatenate(parts), whole.actions)
        made = sum(len(p.actions) for p in shown)
        # The first engine read the prefix, the second one the prefix and what had been made by then.
        assert got.prefilled >= 2 * len(PREFIX) + made
        assert pool.health.lost == 1
        assert pool.health.reissued == 1

    in_pool(work, make=gate.engine)


def kill_busy(pool: PoolEngine, transport: InProcess) -> None:
    """Kill all engines that have work."""
    # All named before the first dies: its work goes to others at once.
    for process in [process for process in transport.alive if process.host._runs]:
        pool._loop.call_soon_threadsafe(process.kill)


def test_scores_are_asked_again() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        tokens = np.array([3, 1, 4, 1, 5], np.int32)
        truth = await tiny_engine().score(tokens, 1)
        asked = [asyncio.ensure_future(pool.score(tokens, 1)) for _ in range(30)]
        await asyncio.sleep(0)
        for process in transport.alive[:2]:
            pool._loop.call_soon_threadsafe(process.kill)
        for scored in await asyncio.gather(*asked):
            assert np.array_equal(scored.logp, truth.logp)

    in_pool(work)


def test_a_stop_survives_the_death_of_its_engine() -> None:
    gate = Gate(20)

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        whole = await tiny_engine().submit(Request(PREFIX, LONG))
        run = pool.submit(Request(PREFIX, LONG))
        shown = await _first(run, 5)
        run.stop("budget")
        kill_busy(pool, transport)
        got = await run
        assert got.finish == "budget"
        assert len(got.actions) >= sum(len(p.actions) for p in shown)
        assert np.array_equal(got.actions, whole.actions[: len(got.actions)])

    in_pool(work, make=gate.engine)


def test_a_replacement_has_the_present_weights_and_the_pause() -> None:
    def other(prefix: tuple[int, ...]) -> list[float]:
        return policy(prefix)[::-1]

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        await pool.update_weights(other, 4)
        assert pool.version == 4
        await pool.pause()
        for process in transport.alive:
            pool._loop.call_soon_threadsafe(process.kill)
        run = pool.submit(Request(PREFIX, LONG))
        await pool.resize(2)
        await pool.resume()
        got = await run
        assert set(got.version.tolist()) == {4}
        assert np.array_equal(got.actions, (await TabularEngine(other, CODEC).submit(Request(PREFIX, LONG))).actions)
        with pytest.raises(EngineError, match="Version 4"):
            await pool.update_weights(policy, 4)

    in_pool(work, size=2)


def test_weights_change_in_one_cut_and_tokens_keep_theirs() -> None:
    gate = Gate(20)

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        runs = [pool.submit(Request(PREFIX, Sampling(max_tokens=60, ignore_eos=True, seed=s))) for s in range(12)]
        shown = await _first(runs[0], 5)
        kill_busy(pool, transport)
        await pool.update_weights(policy, 1)
        gate.open = True
        ended = await asyncio.gather(*runs)
        assert all(len(got.actions) == 60 for got in ended)
        assert all((np.diff(got.version) >= 0).all() and got.version[-1] == 1 for got in ended)
        assert not ended[0].version[: sum(len(p.actions) for p in shown)].any()

    in_pool(work, make=gate.engine)


@pytest.mark.parametrize("seed", range(3))
def test_growing_and_shrinking_moves_what_is_in_flight(seed: int) -> None:
    gate = Gate(10)
    sampling = [Sampling(max_tokens=120, ignore_eos=True, seed=s) for s in range(12)]

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        alone = tiny_engine()
        whole = await asyncio.gather(*(alone.submit(Request(PREFIX, s)) for s in sampling))
        runs = [pool.submit(Request(PREFIX, s, affinity=str(i // 4))) for i, s in enumerate(sampling)]
        await _first(runs[0], 3)
        rng = random.Random(seed)
        for size in (4, 1, 3, rng.randrange(1, 5)):
            await pool.resize(size)
            assert pool.health.engines == size == len(transport.alive)
        gate.open = True
        for got, expected in zip(await asyncio.gather(*runs), whole, strict=True):
            assert np.array_equal(got.actions, expected.actions)
            assert got.finish == expected.finish
        assert pool.health.moved > 0
        assert pool.health.lost == pool.health.in_flight == 0

    in_pool(work, size=2, make=gate.engine)


def narrow() -> LocalEngine:
    """An engine that works on two requests at a time."""
    return tiny.engine(max_batch=2)


async def working(pool: PoolEngine, affinities: str) -> list[PoolRun]:
    """A request for each letter, in a paused pool that has begun only the first of them."""
    sampling = [Sampling(max_tokens=40, ignore_eos=True, seed=seed) for seed in range(len(affinities))]
    asked = [Request(PREFIX, s, affinity=name) for s, name in zip(sampling, affinities, strict=True)]
    first = pool.submit(asked[0])
    await _first(first, 1)
    await pool.pause()
    return [first, *map(pool.submit, asked[1:])]


def test_a_pool_that_grows_gives_the_new_engine_of_what_waits() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        alone = tiny.engine()
        runs = await working(pool, "a" * 4 + "b" * 4 + "c" * 4 + "d" * 4)
        truth = await asyncio.gather(*(alone.submit(run.request) for run in runs))
        await alone.close()
        await pool.resize(2)
        # The two last prefixes, which nobody had read, with all their requests.
        assert pool.health.loads == (8, 8)
        assert pool.health.moved == 8
        assert {job.affinity for job in pool._hub.replicas.members[1].jobs.values()} == {"c", "d"}
        await pool.resize(4)
        assert max(pool.health.loads) <= 4
        await pool.resume()
        for got, expected in zip(await asyncio.gather(*runs), truth, strict=True):
            assert np.array_equal(got.actions, expected.actions)
            assert np.allclose(got.logp, expected.logp, atol=1e-5)
            assert got.finish == expected.finish
        assert pool.health.reissued == pool.health.in_flight == pool.health.lost == 0

    in_pool(work, size=1, make=narrow, lives=1)


def test_what_has_been_begun_and_what_shares_its_prefix_stays() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        runs = await working(pool, "a" * 8)
        await pool.resize(2)
        assert pool.health.loads == (8, 0)
        runs += [pool.submit(run.request) for run in runs]
        await asyncio.sleep(0)
        await pool.resize(3)
        # Fifteen wait, but their prefix is read where they are: eight and half as many again as elsewhere may stay.
        old, *others = pool.health.loads
        assert sum((old, *others)) == 16
        assert old <= 8 + 1.5 * min(others) + 1
        await pool.resume()
        assert all(len(sample.actions) == 40 for sample in await asyncio.gather(*runs))

    in_pool(work, size=1, make=narrow)


def test_an_engine_that_dies_while_it_hands_over_loses_nothing() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        runs = await working(pool, "abcdefgh" * 2)
        growing = asyncio.ensure_future(pool.resize(3))
        busy = pool._hub.replicas.members[0]
        while not growing.done() and not any(job.moving for job in list(busy.jobs.values())):
            await asyncio.sleep(0)
        pool._loop.call_soon_threadsafe(transport.processes[0].kill)
        await growing
        await pool.resize(3)
        await pool.resume()
        assert all(len(sample.actions) == 40 for sample in await asyncio.gather(*runs))
        assert pool.health.engines == 3

    in_pool(work, size=1, make=narrow)


def test_a_request_that_kills_its_engines_fails_and_others_live() -> None:
    gate = Gate(4)

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        run = asyncio.ensure_future(_whole(pool, LONG))
        while not run.done():
            kill_busy(pool, transport)
            await asyncio.sleep(0.001)
        with pytest.raises(EngineError, match="2 engines died with this request"):
            run.result()
        gate.open = True
        assert len((await _whole(pool, LONG)).actions) == 60

    in_pool(work, lives=2, make=gate.engine)


async def _whole(pool: PoolEngine, sampling: Sampling) -> Sample:
    return await pool.submit(Request(PREFIX, sampling))


def test_failed_starts_are_repeated_and_a_hopeless_pool_says_why() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        transport.refuse = 2
        kill_all = [process.kill for process in transport.alive]
        run = pool.submit(Request(PREFIX, LONG))
        for kill in kill_all:
            pool._loop.call_soon_threadsafe(kill)
        assert len((await run).actions) == 60
        assert pool.health.failed_starts == 2
        transport.refuse = 100
        for process in transport.alive:
            pool._loop.call_soon_threadsafe(process.kill)
        with pytest.raises(EngineError, match="none could be started: LostError"):
            await pool.submit(Request(PREFIX, LONG))
        transport.refuse = 0
        assert len((await pool.submit(Request(PREFIX, LONG))).actions) == 60

    in_pool(work, size=1)


def test_what_an_engine_refuses_is_the_pools_answer() -> None:
    def make() -> TabularEngine:
        raise EngineError("there are no such weights")

    async def opened() -> None:
        transport = InProcess()
        with pytest.raises(EngineError, match="no such weights"):
            PoolEngine(make, 2, transport)
        assert len(transport.processes) == 2
        assert not transport.alive
        with pytest.raises(ClusterError, match="0 engines"):
            PoolEngine(make, 0, transport)

    async def work(pool: PoolEngine, transport: InProcess) -> None:
        with pytest.raises(EngineError, match="not a distribution"):
            await pool.submit(Request(PREFIX, LONG))
        with pytest.raises(ClusterError, match="0 engines"):
            await pool.resize(0)

    asyncio.run(opened())
    in_pool(work, make=lambda: TabularEngine(lambda prefix: [0.5] * CODEC.vocab_size, CODEC))


def test_weights_that_no_engine_takes_change_nothing() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        before = await pool.submit(Request(np.array([3, 1, 4]), LONG))
        with pytest.raises(EngineError, match="must be a state dict"):
            await pool.update_weights(3, 1)
        assert pool.version == 0
        assert pool.health.lost == 0
        after = await pool.submit(Request(np.array([3, 1, 4]), LONG))
        assert np.array_equal(before.actions, after.actions)

    in_pool(work, size=2, make=tiny.engine)


def test_a_budget_that_ends_among_deaths_is_kept_to_the_token() -> None:
    async def work(pool: PoolEngine, transport: InProcess) -> None:
        budget = Budget(Limits(decoded=200))
        killer = asyncio.ensure_future(killing(pool, transport, 3, 7))
        items = list(itertools.islice(Walk().items("train"), 6))
        forest = await grow(Independent(4), pool, Walk(), items, seed=1, budget=budget)
        killer.cancel()
        budget.check()
        assert budget.spent.decoded <= 200
        assert budget.spent.decoded == sum(len(n) for tree in forest for n in tree if n.role == "policy")

    in_pool(work, lives=1000)


def test_closing_keeps_what_exists() -> None:
    async def main() -> None:
        pool = PoolEngine(tiny_engine, 2, InProcess(), latency=0.0005)
        runs = [pool.submit(Request(PREFIX, Sampling(max_tokens=4000, ignore_eos=True, seed=s))) for s in range(4)]
        shown = await _first(runs[0], 5)
        await pool.close()
        await pool.close()
        ended = await asyncio.gather(*runs)
        assert [got.finish for got in ended] == ["abort"] * 4
        assert len(ended[0].actions) >= sum(len(p.actions) for p in shown)
        with pytest.raises(EngineError, match="closed"):
            pool.submit(Request(PREFIX, LONG))

    asyncio.run(main())
