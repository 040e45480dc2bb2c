"""Whatever raises inside an engine, every run that was taken ends; memory that is short makes it smaller, not dead."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading

import numpy as np
import pytest
import torch

from rolltree.engine.local import core as core_module
from rolltree.engine.local.admit import AdmissionLimits, is_shortage, smaller
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.run import Watchdog, carried
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.policy.slab import Slab
from tests.engine import tiny
from tests.engine.test_semantics import ask, run

SHORT = "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
PATIENCE = 300
"""Seconds after which a test says that a run hangs instead of hanging with it."""


async def ended(runs):
    """Samples and errors of all runs, none of which may hang."""
    return await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), PATIENCE)


async def collected(run):
    return [part async for part in run]


def several(engine, count=12, **knobs):
    rng = np.random.default_rng(7)
    settings = {"max_tokens": 12, "ignore_eos": True, **knobs}
    return [ask(engine, rng.integers(1, tiny.VOCAB, 3 + i), seed=i, want=("top:2",), **settings) for i in range(count)]


class Short:
    """Stands before an engine's decoder and runs out of memory where more than `rows` are read at once."""

    def __init__(self, decoder, rows):
        self._decoder, self.rows, self.refused = decoder, rows, 0

    def __getattr__(self, name):
        return getattr(self._decoder, name)

    def extend(self, ids, *others):
        if len(ids) > self.rows:
            self.refused += 1
            raise RuntimeError(SHORT)
        return self._decoder.extend(ids, *others)


def short(engine, rows):
    core = engine._worker.core
    core.decoder = Short(core.decoder, rows)
    return core


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt(), MemoryError(), RuntimeError(SHORT)])
def test_a_step_that_raises_before_its_wave_is_seated_loses_nobody(error, monkeypatch):
    whole = Slab.resize

    async def scenario(engine):
        free = await ended(several(engine))

        def resize(*args, **kwargs):
            monkeypatch.setattr(Slab, "resize", whole)
            raise error

        monkeypatch.setattr(Slab, "resize", resize)
        engine._worker.core._clear()
        got = await ended(several(engine))
        if is_shortage(error):
            assert [s.actions.tolist() for s in got] == [s.actions.tolist() for s in free]
        else:
            assert all(type(error).__name__ in str(e) for e in got)
        again = await ended(several(engine))
        assert [s.actions.tolist() for s in again] == [s.actions.tolist() for s in free]

    run(scenario, dtype=torch.float64)


@pytest.mark.parametrize("rows", [5, 1])
def test_out_of_memory_lets_in_fewer_says_so_and_changes_no_sample(rows, caplog):
    async def scenario(engine):
        free = await ended(several(engine))
        streams = [asyncio.ensure_future(collected(r)) for r in several(engine, 3)]
        core = short(engine, rows)
        with caplog.at_level(logging.WARNING, "rolltree.engine"):
            got = await ended(several(engine))
        assert core.decoder.refused
        assert "ran out of memory with 15 requests inside" in caplog.text or "with 12 requests inside" in caplog.text
        assert core.limits.max_batch <= max(rows, 1) * 2
        for a, b in zip(free, got, strict=True):
            assert b.actions.tolist() == a.actions.tolist()
            np.testing.assert_allclose(b.logp, a.logp, atol=1e-6)
            np.testing.assert_allclose(b.sampling_logprob, a.sampling_logprob, atol=1e-6)
            assert b.top.ids.tolist() == a.top.ids.tolist()
        for parts, a in zip(await ended(streams), free, strict=False):
            assert list(itertools.chain(*(p.actions.tolist() for p in parts))) == a.actions.tolist()

    run(scenario, dtype=torch.float64)


@pytest.mark.parametrize("after", range(1, 9))
def test_memory_that_runs_out_in_the_middle_of_samples_costs_no_token(after):
    async def scenario(engine):
        free = await ended(several(engine, 6))
        core, steps = engine._worker.core, itertools.count(1)
        core.decoder = Short(core.decoder, 99)
        advance = core._advance

        def counted(news):
            core.decoder.rows = 2 if next(steps) > after else 99
            advance(news)

        core._advance = counted
        got = await ended(several(engine, 6))
        assert core.decoder.refused
        for a, b in zip(free, got, strict=True):
            assert b.actions.tolist() == a.actions.tolist()
            np.testing.assert_allclose(b.logp, a.logp, atol=1e-6)
            assert b.top.ids.tolist() == a.top.ids.tolist()

    run(scenario, dtype=torch.float64)


def test_a_run_put_back_for_want_of_memory_keeps_what_it_has_when_it_is_stopped():
    async def scenario(engine):
        core, runs = engine._worker.core, several(engine, 4, max_tokens=90)
        heard = aiter(runs[3])
        first = await anext(heard)
        await engine.pause()
        core.decoder = Short(core.decoder, 0)
        written = {r: int(core.batch.length[i]) - r.begin for i, r in enumerate(core.batch.runs)}
        core._guarded(lambda news: core._recompute())
        assert len(core.queue) == 4
        for r in runs:
            r.stop()
        rest = [part async for part in heard]
        for r, sample in zip(runs, await ended(runs), strict=True):
            assert sample.finish == "abort"
            assert len(sample.actions) == len(sample.logp) == len(sample.top.ids) == written[r] >= 1
        assert sum(len(p.actions) for p in (first, *rest)) == written[runs[3]]

    run(scenario)


def test_where_there_is_memory_for_nobody_every_run_ends_with_that_word():
    async def scenario(engine):
        core = short(engine, 0)
        got = await ended(several(engine))
        assert all("too little memory" in str(e) for e in got)
        core.decoder.rows = 99
        assert all(len(s.actions) == 12 for s in await ended(several(engine)))

    run(scenario)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopIteration, GeneratorExit])
def test_a_hook_that_raises_anything_at_all_ends_its_own_run(error):
    def hook(so_far, logits):
        raise error

    async def local(engine):
        bad, good = ask(engine, max_tokens=4, hook=hook), ask(engine, max_tokens=4, ignore_eos=True)
        failed, sample = await ended([bad, good])
        assert isinstance(failed, EngineError)
        assert error.__name__ in str(failed)
        assert len(sample.actions) == 4

    async def tabular():
        engine = TabularEngine(lambda prefix: [0.5, 0.5], Letters("ab"))
        sampled = engine.submit(Request(np.array([0]), Sampling(max_tokens=4)))
        failed = (await ended([engine.submit(Request(np.array([0]), Sampling(max_tokens=4, hook=hook)))]))[0]
        assert isinstance(failed, EngineError)
        assert error.__name__ in str(failed)
        assert len((await sampled).actions) == 4

    run(local)
    asyncio.run(tabular())


@pytest.mark.parametrize("error", [RuntimeError("x"), asyncio.CancelledError()])
def test_the_pace_of_a_tabular_engine_may_break_and_nobody_waits_for_ever(error):
    async def pace():
        raise error

    async def main():
        engine = TabularEngine(lambda prefix: [0.5, 0.5], Letters("ab"), pace=pace)
        got = await ended([engine.submit(Request(np.array([0]), Sampling(max_tokens=4))) for _ in range(3)])
        assert all(isinstance(e, Exception) for e in got)

    asyncio.run(main())


def test_a_codec_that_fails_on_one_requests_stops_fails_that_request():
    class Odd(tiny.Letters):
        def decode(self, ids):
            if 3 in [int(i) for i in ids] and self.broken:
                raise ValueError("no text for 3")
            return super().decode(ids)

        broken = False

    async def scenario(engine):
        engine._worker.core._stops._codec = codec = Odd()
        asked = ask(engine, max_tokens=4, stop=("zz",)), ask(engine, max_tokens=4, ignore_eos=True)
        codec.broken = True
        bad, good = await ended(asked)
        assert "no text for 3" in str(bad)
        assert len(good.actions) == 4

        def only_c(so_far, logits):
            logits[:] = -torch.inf
            logits[3] = 0.0
            return logits

        codec.broken = False
        engine._worker.core._stops.meaning(Sampling(stop=("c!",)))
        bad, good = ask(engine, max_tokens=4, stop=("cc",), hook=only_c), ask(engine, max_tokens=4, ignore_eos=True)
        engine._worker.core._stops.meaning(bad.request.sampling)
        codec.broken = True
        bad, good = await ended((bad, good))
        assert "no text for 3" in str(bad)
        assert len(good.actions) == 4

    run(scenario)


def test_an_order_that_raises_ends_those_inside_and_the_engine_lives_on(monkeypatch):
    async def scenario(engine):
        runs = several(engine, 3, max_tokens=100)
        await anext(aiter(runs[0]))
        monkeypatch.setattr(core_module.Core, "stop", lambda *args: 1 / 0)
        runs[1].stop()
        assert all("ZeroDivisionError" in str(e) for e in await ended(runs))
        monkeypatch.undo()
        assert all(len(s.actions) == 12 for s in await ended(several(engine)))

    run(scenario)


def test_scores_that_do_not_fit_together_are_read_apart():
    async def scenario(engine):
        texts = [np.random.default_rng(i).integers(1, tiny.VOCAB, 20) for i in range(8)]
        free = await asyncio.gather(*(engine.score(t, 1) for t in texts))
        core = short(engine, 3)
        got = await asyncio.wait_for(asyncio.gather(*(engine.score(t, 1) for t in texts)), PATIENCE)
        assert core.decoder.refused
        for a, b in zip(free, got, strict=True):
            np.testing.assert_allclose(a.logp, b.logp, atol=1e-5)

    run(scenario)


def test_an_update_without_memory_for_the_caches_puts_runs_back_and_loses_none():
    async def scenario(engine):
        asked = threading.Event()

        def held(generated, logits):
            assert len(generated) < 3 or asked.wait(60), "the update comes while all are under way"
            return logits

        runs = several(engine, 6, max_tokens=40, hook=held)
        await anext(aiter(runs[0]))
        core = short(engine, 2)
        update = asyncio.create_task(engine.update_weights(tiny.llama(1), 1))
        await asyncio.sleep(0)
        asked.set()
        await update
        got = await ended(runs)
        assert all(len(s.actions) == 40 and s.version[-1] == 1 for s in got)
        assert core.decoder.refused

    run(scenario)


def test_an_engine_that_lets_nobody_in_says_so_instead_of_spinning(monkeypatch):
    async def scenario(engine):
        monkeypatch.setattr(core_module, "wave", lambda *args, **kwargs: ([], 0))
        assert all("no progress" in str(e) for e in await ended(several(engine, 3)))

    run(scenario)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"stop": (1,)}, "stop"), ({"stop": "ab"}, "stop"), ({"stop_ids": ("a",)}, "stop_ids"), ({"seed": "1"}, "seed"),
     ({"max_tokens": 2.5}, "max_tokens"), ({"temperature": "hot"}, "temperature"), ({"top_p": None}, "top_p")],
)  # fmt: skip
def test_a_knob_of_another_kind_is_refused_before_it_can_fail_a_step(wrong, named):
    async def scenario(engine):
        with pytest.raises(EngineError, match=f"{named} is "):
            ask(engine, **wrong)

    run(scenario)


def test_what_a_future_cannot_carry_is_wrapped():
    assert isinstance(carried(StopIteration("x")), EngineError)
    assert isinstance(carried(asyncio.CancelledError()), EngineError)
    same = ValueError("x")
    assert carried(same) is same


def test_giving_up_memory_ends_at_one_request_that_reads_little():
    limits, inside, steps = AdmissionLimits(256, 10_000, 5_000, 128, 8), 200, 0
    while (less := smaller(limits, inside)) is not None:
        limits, inside, steps = less, min(inside, less.max_batch), steps + 1
    assert (limits.max_batch, limits.cache) == (1, 0)
    assert steps < 12


def test_the_watchdog_names_an_engine_that_stands_still_once_and_says_when_it_goes_on(caplog):
    clock = [0.0]

    class Standing:
        seen: int | None = None

        def at_work(self):
            return self.seen

        def doing(self):
            return "the engine of this test stands"

    engine = Standing()
    dog = Watchdog(engine, silence=100.0, now=lambda: clock[0])
    story = [(0, None), (500, None), (510, 1), (560, 1), (611, 1), (700, 1), (710, 2), (750, 2), (800, None), (2000, 3)]
    with caplog.at_level(logging.WARNING, "rolltree.engine"):
        for clock[0], engine.seen in story:
            assert dog.look() == (engine.seen is not None)
    assert caplog.messages == [
        "No progress for 101 s: the engine of this test stands.", "The engine goes on after 200 s.",
    ]  # fmt: skip


def test_a_hanging_hook_is_found_by_name():
    async def scenario(engine):
        inside, leave = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hook_of_this_test(so_far, logits):
            loop.call_soon_threadsafe(inside.set)
            leave.wait(PATIENCE)
            return logits

        waiting = ask(engine, max_tokens=1, hook=hook_of_this_test)
        await asyncio.wait_for(inside.wait(), PATIENCE)
        before = engine.at_work()
        assert before is not None
        assert "1 requests inside" in engine.doing()
        assert engine.at_work() == before
        leave.set()
        await waiting
        assert engine.at_work() is None

    run(scenario)


@pytest.mark.parametrize(
    ("hook", "told"),
    [(lambda so_far, row: row[:-1], "shape"), (lambda so_far, row: row * np.nan, "NaN"),
     (lambda so_far, row: 1 / 0, "ZeroDiv"),
     (lambda so_far, row: row - np.inf, "left no token"), (lambda so_far, row: "x", "ValueError")],
)  # fmt: skip
def test_what_a_hook_does_wrong_is_an_engine_error_in_the_exact_engine_too(hook, told):
    async def main():
        engine = TabularEngine(lambda prefix: [0.5, 0.5], Letters("ab"))
        with pytest.raises(EngineError, match=told):
            await engine.submit(Request(np.array([0]), Sampling(max_tokens=4, hook=hook)))

    asyncio.run(main())
