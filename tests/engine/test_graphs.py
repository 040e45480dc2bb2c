"""Recorded decoding steps: the same samples as without, whatever joins, ends, grows or is published meanwhile.

A recording is played here by doing its work again on the tensors that it was made with, as a card does; `make gpu`
compares the real ones with the processor.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest
import torch

from rolltree.engine.local import common_prefixes
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy import graphs
from rolltree.policy.graphs import Steps
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
        core.graphs = None if record is None else Steps(core.decoder, record)
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


def test_steps_are_recorded_on_cards_alone_and_of_known_forwards_alone():
    assert Steps.of(tiny.engine()._worker.core.decoder) is None
    foreign = tiny.engine(tiny.gpt2())._worker.core.decoder
    assert foreign.tables is None
