"""Recorded decoding steps: the same samples as without, whatever joins, ends, grows or is published meanwhile.

A recording is played here by doing its work again on the tensors that it was made with, as a card does; `make gpu`
compares the real ones with the processor.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rolltree.engine.local import common_prefixes
from rolltree.engine.local.common_prefixes import levels_of
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy import graphs
from rolltree.policy.graphs import RecordedSteps
from rolltree.policy.shared import Shared
from rolltree.policy.slab import LayerShape, Slab
from rolltree.policy.training import TURNS
from tests.engine import tiny
from tests.engine.test_common_prefixes import FORKED, text


@pytest.fixture(autouse=True)
def pays(monkeypatch):
    monkeypatch.setattr(common_prefixes, "PAYS", 1)
    monkeypatch.setattr(common_prefixes, "PAYS_EACH", 0)


def again(work):
    return work


def told(scenario, record=None, **knobs):
    """Samples of a scenario, and what its steps were."""

    async def once():
        engine = tiny.engine(**{"dtype": torch.float64, "max_tokens_in_memory": 16_000} | knobs)
        core = engine._worker.core
        core.graphs = None if record is None else RecordedSteps(core.decoder, lambda: record)
        try:
            return await scenario(engine), core.graphs
        finally:
            await engine.close()

    return asyncio.run(once())


async def asked(engine, prefixes, first=0, tokens=lambda i: 20, **knobs):
    wanted = {"ignore_eos": True} | knobs
    runs = [
        engine.submit(Request(ids, Sampling(seed=first + i, max_tokens=tokens(i), **wanted), frozenset({"entropy"})))
        for i, ids in enumerate(prefixes)
    ]

    async def one(run):
        return await run

    return list(await asyncio.gather(*map(one, runs)))


def check(scenario, **knobs):
    plain, _ = told(scenario, **knobs)
    mine, steps = told(scenario, again, **knobs)
    assert steps.repeated > 2 * steps.recorded > 0
    for a, b in zip(plain, mine, strict=True):
        assert a.actions.tolist() == b.actions.tolist()
        np.testing.assert_allclose(a.logp, b.logp, atol=1e-9)
        np.testing.assert_allclose(a.entropy, b.entropy, atol=1e-9)
    return steps


def test_a_group_behind_one_prompt():
    steps = check(lambda engine: asked(engine, [text((0, 40))] * 9))
    assert steps.recorded == 1, "one number of rows in one place is one recording"


def test_rows_end_one_after_another_and_levels_go_with_them():
    check(lambda engine: asked(engine, FORKED, tokens=lambda i: 8 + 5 * i))


def test_rows_without_anything_shared():
    check(lambda engine: asked(engine, [text((i, 3 + i)) for i in range(11)], tokens=lambda i: 30 - i))


def test_the_memory_grows_under_a_recording():
    check(lambda engine: asked(engine, [text((0, 40))] * 3 + [text((1, 6))], tokens=lambda i: 70))


def test_others_join_on_the_way():
    async def scenario(engine):
        early = asyncio.ensure_future(asked(engine, FORKED[:7], tokens=lambda i: 60))
        await asyncio.sleep(0)
        late: list = []
        for wave in range(3):
            late += await asked(engine, [text((0, 40)), text((20 + wave, 30)), text((20 + wave, 30))], 50 + 3 * wave)
        return await early + late

    check(scenario, lockstep=True)


def test_new_weights_are_read_by_old_recordings():
    async def scenario(engine):
        before = await asked(engine, [text((0, 40))] * 4)
        await engine.update_weights(tiny.llama(1).state_dict(), 1)
        return before + await asked(engine, [text((0, 40))] * 4)

    check(scenario)


def test_recordings_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(graphs, "KEPT", 1)
    steps = check(lambda engine: asked(engine, [text((i, 4)) for i in range(32)], tokens=lambda i: 3 * i + 3))
    assert steps.recorded > 1
    assert len(steps._kept) == 1


def test_where_nothing_can_be_recorded_the_engine_goes_on(caplog, engine_log):
    def broken(work):
        raise RuntimeError("operation not permitted when stream is capturing")

    with caplog.at_level(logging.WARNING, logger=engine_log.name):
        mine, steps = told(lambda engine: asked(engine, [text((0, 40))] * 4), broken)
    plain, _ = told(lambda engine: asked(engine, [text((0, 40))] * 4))
    assert [a.actions.tolist() for a in mine] == [a.actions.tolist() for a in plain]
    assert (steps.recorded, steps.repeated) == (0, 0)
    assert [r.getMessage() for r in caplog.records] == [
        "Decoding steps cannot be recorded as CUDA graphs (operation not permitted when stream is capturing); the "
        "engine goes on without."
    ]


def test_memory_that_is_short_once_ends_one_recording_and_three_times_in_a_row_all():
    def short(times):
        left = iter(range(times))

        def record(work):
            if next(left, None) is not None:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return work

        return record

    plain, _ = told(lambda engine: waves(engine, 6))
    once, steps = told(lambda engine: waves(engine, 6), short(1))
    assert steps.works
    assert steps.repeated > 2 * steps.recorded > 0
    assert [a.actions.tolist() for a in once] == [a.actions.tolist() for a in plain]
    _, steps = told(lambda engine: waves(engine, 6), short(100))
    assert not steps.works
    assert steps.recorded == 0


async def waves(engine, count):
    """Groups of other widths, one after the other."""
    out = []
    for i in range(count):
        out += await asked(engine, [text((i, 20 + 16 * i))] * 3 + [text((50 + i, 5))] * 2)
    return out


def test_levels_that_are_gone_are_not_held():
    slab = Slab.zeros((LayerShape(2, 4, 4),), 3, 16, torch.float64, torch.device("cpu"))
    lengths, seen = np.array([16, 12, 9]), np.array([0, 0, 1, 2, 2])
    shared = Shared(torch.full((5,), 16), 16, tuple(levels_of(slab, lengths, seen)))
    standing = graphs._Standing.like(shared, 8)
    standing.take(shared)
    gone = weakref.ref(slab.keys[0])
    del slab, shared
    gc.collect()
    assert gone() is None


def test_nothing_is_recorded_while_a_policy_is_trained():
    async def scenario(engine):
        with TURNS.training(), TURNS.training():
            out = await asked(engine, [text((0, 40))] * 4)
            steps = engine._worker.core.graphs
            assert (steps.recorded, steps.repeated) == (0, 0)
        return out + await asked(engine, [text((0, 40))] * 4)

    plain, _ = told(twice)
    mine, steps = told(scenario, again)
    assert steps.recorded == 1
    assert [a.actions.tolist() for a in mine] == [a.actions.tolist() for a in plain]


async def twice(engine):
    return await asked(engine, [text((0, 40))] * 4) + await asked(engine, [text((0, 40))] * 4)


def test_training_waits_for_a_recording_and_recordings_for_nothing():
    order: list[str] = []
    recording, goes_on = threading.Event(), threading.Event()

    def record():
        with TURNS.recording() as free:
            assert free
            recording.set()
            goes_on.wait(60)
            order.append("recorded")

    def train():
        with TURNS.training():
            order.append("trained")

    threads = [threading.Thread(target=record), threading.Thread(target=train)]
    threads[0].start()
    assert recording.wait(60)
    threads[1].start()
    with TURNS.recording() as free:
        assert not free
    goes_on.set()
    for thread in threads:
        thread.join(300)
    assert order == ["recorded", "trained"]


def test_a_recording_that_breaks_off_tells_its_own_error(monkeypatch):
    ended: list = []

    class Graph:
        def capture_begin(self, pool, capture_error_mode):
            ended.append(("begin", capture_error_mode))

        def capture_end(self):
            raise RuntimeError("failed due to a previous error during capture")

    record = object.__new__(graphs.CudaRecord)
    record._stream = SimpleNamespace(device=torch.device("cuda", 0))
    record._pool, record._last = (0, 1), Graph()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 2))
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *at: ended.append(at), raising=False)

    def work():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        record._recorded(Graph(), work)
    assert ended == [("begin", "thread_local"), (0, (0, 1))]
    assert (record._pool, record._last) == ((0, 2), None), "the old pool may never be used again"


def test_steps_are_recorded_on_cards_alone_and_of_known_forwards_alone():
    assert RecordedSteps.of(tiny.engine()._worker.core.decoder) is None
    foreign = tiny.engine(tiny.gpt2())._worker.core.decoder
    assert foreign.tables is None
