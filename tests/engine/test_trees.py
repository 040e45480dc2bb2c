"""Trees in the local engine: who is let in first, what is kept of them, and what cancelling costs."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from rolltree.engine.local import prefix as prefix_module
from rolltree.engine.local.admit import Ranks
from rolltree.engine.protocol import Request, Sampling
from tests.engine.test_semantics import PREFIX, run

FOUR = Sampling(max_tokens=4, ignore_eos=True)


async def tree(engine, name, done):
    """A root and three children below it."""
    first = await engine.submit(Request(PREFIX, FOUR, affinity=name))
    longer = np.concatenate([PREFIX, first.actions])
    await asyncio.gather(*(_get(engine.submit(Request(longer, FOUR, affinity=name))) for _ in range(3)))
    done.append(name)


async def _get(run):
    return await run


def test_a_tree_that_has_begun_is_ended_before_others_begin():
    begun, done = [], []

    async def scenario(engine):
        core = engine._worker.core
        step = core.step

        def watched():
            news = step()
            begun.append((len(done), {r.request.affinity for r in core.batch.runs}))
            return news

        core.step = watched
        await asyncio.gather(*(tree(engine, f"tree {i}", done) for i in range(8)))

    run(scenario, max_batch=2, lockstep=True)
    assert sorted(done) == [f"tree {i}" for i in range(8)]
    # With two at once, first come, first served would begin all eight before any of them ends.
    seen = set()
    for ended, names in begun:
        seen |= names
        assert len(seen) - ended <= 3


def test_requests_without_affinity_keep_their_order_and_old_names_are_forgotten():
    ranks = Ranks()
    assert [ranks.rank(name) for name in ("", "a", "", "b", "a")] == [0, 1, 2, 3, 1]
    for i in range(1 << 15):
        ranks.rank(str(i))
    assert ranks.rank("a") > 1


@pytest.mark.parametrize(
    ("forks", "finish", "paid"),
    [("none", "length", 40), ("maybe", "length", 1), ("planned", "length", 1), ("none", "abort", 1)],
)
def test_what_nobody_goes_on_from_is_not_kept(forks, finish, paid):
    async def scenario(engine):
        asked = Sampling(max_tokens=40 if finish == "length" else 90, ignore_eos=True)
        got = engine.submit(Request(PREFIX, asked, forks=forks))
        if finish == "abort":
            async for _ in got:
                got.stop()
        sample = await got
        assert sample.finish == finish
        known = np.concatenate([PREFIX, sample.actions])
        again = await engine.submit(Request(known, FOUR))
        assert again.prefilled == paid

    run(scenario)


def test_those_who_are_cancelled_together_leave_together(monkeypatch):
    """One copy of what is kept and one closing of gaps for all of them; the others go on where they were."""
    calls, store = [], prefix_module.PrefixCache.store

    def counted(self, rows, *others):
        calls.append(len(rows))
        return store(self, rows, *others)

    async def scenario(engine):
        long = Sampling(max_tokens=60, ignore_eos=True)
        runs = [engine.submit(Request(PREFIX, long)) for _ in range(16)]
        async for _ in runs[1]:
            await engine.pause()
            break
        monkeypatch.setattr(prefix_module.PrefixCache, "store", counted)
        held = threading.Event()
        engine._worker.post(lambda: held.wait(60) and None)  # between two steps, until all have been stopped
        for each in runs[::2]:
            each.stop()
        held.set()
        gone = [await each for each in runs[::2]]
        monkeypatch.setattr(prefix_module.PrefixCache, "store", store)
        await engine.resume()
        left = [await each for each in runs[1::2]]
        assert {sample.finish for sample in gone} == {"abort"}
        assert {len(sample.actions) for sample in left} == {60}

    run(scenario)
    assert calls == [8]


def test_an_engine_tells_what_became_of_kept_prefixes():
    async def scenario(engine):
        for i in range(12):
            await engine.submit(Request(np.full(40, 1 + i, np.int32), FOUR))
        await engine.submit(Request(np.full(40, 12, np.int32), FOUR))
        counts = engine.prefixes
        assert counts.found >= 39
        assert counts.evicted > 0
        assert counts.evicted_planned == 0

    run(scenario, max_tokens_in_memory=1_000)


def test_trees_grow_alike_in_either_order():
    """Which tree comes first decides when something is made, not what."""

    async def scenario(engine):
        names = ["a", "b", "c"] if engine._worker.core.limits.max_batch > 2 else ["c", "b", "a"]
        asked = [Sampling(max_tokens=6, seed=ord(name), ignore_eos=True) for name in names]
        runs = [engine.submit(Request(PREFIX, s, affinity=n)) for n, s in zip(names, asked, strict=True)]
        return {name: (await each).actions.tolist() for name, each in zip(names, runs, strict=True)}

    assert run(scenario, max_batch=8) == run(scenario, max_batch=2)
