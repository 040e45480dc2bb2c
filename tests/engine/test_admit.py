"""Who joins in a step: as many as there is room for, and as much as may be read."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rolltree.engine.local.admit import wave
from rolltree.engine.protocol import Request, Sampling
from tests.engine import tiny

ROOMY = {"max_batch": 64, "budget": 1 << 20}


def queue(*lengths):
    """Requests with different prefixes of these lengths."""
    ids = [np.full(n, i, np.int64) for i, n in enumerate(lengths)]
    return deque(SimpleNamespace(ids=x, limit=len(x) + 8) for x in ids)


@pytest.mark.parametrize(
    ("known", "prefill", "joining"),
    [
        (lambda ids: 0, 200, 2),
        (lambda ids: len(ids) - 1, 200, 5),
        (lambda ids: 60, 199, 4),
        (lambda ids: 0 if ids[0] == 1 else 99, 103, 4),
    ],
)
def test_a_wave_is_as_large_as_what_it_has_to_read(known, prefill, joining):
    waiting = queue(*[100] * 5)
    taken, longest = wave(waiting, 0, 0, known, prefill=prefill, **ROOMY)
    assert (len(taken), len(waiting), longest) == (joining, 5 - joining, 108)


def test_the_first_joins_however_much_it_has_to_read():
    taken, _ = wave(queue(300, 300), 0, 0, lambda ids: 0, prefill=200, **ROOMY)
    assert len(taken) == 1


def test_forks_of_what_the_engine_wrote_join_in_one_step():
    async def run():
        engine = tiny.engine()
        core = engine._worker.core
        core.limits = replace(core.limits, prefill=64)
        root = np.random.default_rng(0).integers(1, tiny.VOCAB, 30)
        again = Sampling(max_tokens=8, ignore_eos=True)
        whole = [await engine.submit(Request(root, replace(again, seed=i), forks="planned")) for i in range(4)]
        inside = list[int]()
        admit = core._admit

        def admitted(news):
            taken = admit(news)
            inside.append(len(taken))
            return taken

        core._admit = admitted
        below = [np.concatenate([root, sample.actions]) for sample in whole]
        assert len({x.tobytes() for x in below}) == 4
        runs = [engine.submit(Request(x, again, forks="none")) for x in below]
        await asyncio.gather(*(_get(run) for run in runs))
        await engine.close()
        return inside

    assert asyncio.run(run())[0] == 4


async def _get(run):
    return await run
