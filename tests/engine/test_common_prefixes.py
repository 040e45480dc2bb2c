"""Requests that begin alike read their common text once, and nothing else about them changes."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.local import common_prefixes as shared_module
from rolltree.engine.local.common_prefixes import LEVELS, CommonPrefixes
from rolltree.engine.local.prefix import BLOCK, PrefixCache
from rolltree.engine.local.speculate import Speculation
from rolltree.engine.local.speculate.shapes import GuessWidths, Spine
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy.foreign import decoder_of
from tests.engine import tiny


@pytest.fixture(autouse=True)
def pays(monkeypatch):
    """Texts of these tests are short, so whatever is shared pays."""
    monkeypatch.setattr(shared_module, "PAYS", 1)
    monkeypatch.setattr(shared_module, "PAYS_EACH", 0)


def text(*pieces):
    """One stretch of tokens for each (seed, length)."""
    return np.concatenate([np.random.default_rng(seed).integers(1, tiny.VOCAB, n) for seed, n in pieces])


EXTRAS = frozenset({"entropy", "hidden"})
FORKED = [
    text((0, 40)),
    text((0, 40)),
    text((0, 37)),
    text((0, 33), (1, 20)),
    text((0, 33), (1, 20)),
    text((0, 33), (1, 20), (2, 17)),
    text((0, 33), (1, 20), (2, 17)),
    text((0, 33), (1, 16), (3, 30)),
    text((0, 17), (4, 5)),
    text((5, 50)),
    text((6, 2)),
    text((7, 35)),
    text((7, 35)),
]
"""Forks inside blocks, at their ends and at the end of a prefix; prefixes alone; prefixes too short."""


async def grown(engine, prefixes, want=EXTRAS, **knobs):
    wanted = {"max_tokens": 12, "ignore_eos": True} | knobs
    runs = [engine.submit(Request(ids, Sampling(seed=i, **wanted), want)) for i, ids in enumerate(prefixes)]
    samples = await asyncio.gather(*(_get(run) for run in runs))
    return samples, engine._worker.core.commons.shared_tokens


async def _get(run):
    return await run


def both(scenario, **knobs):
    """What a scenario gives with common prefixes and with all text in rows of its own."""

    async def once(*, share):
        engine = tiny.engine(**{"dtype": torch.float64, "max_tokens_in_memory": 16_000} | knobs)
        if not share:
            engine._worker.core.commons.room = 0
        try:
            return await scenario(engine)
        finally:
            await engine.close()

    return asyncio.run(once(share=True)), asyncio.run(once(share=False))


def same(one, other):
    for a, b in zip(one, other, strict=True):
        assert a.actions.tolist() == b.actions.tolist()
        assert a.version.tolist() == b.version.tolist()
        for name in ("logp", "sampling_logprob", "entropy", "hidden"):
            assert (getattr(a, name) is None) == (getattr(b, name) is None)
            if getattr(a, name) is not None:
                np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0}, {"top_k": 5}])
def test_forks_at_any_token_are_as_without_sharing(sampling):
    (one, shared), (other, none) = both(lambda engine: grown(engine, FORKED, **sampling))
    assert (shared > 150, none) == (True, 0)
    same(one, other)


GUESSES = {
    "chain": Speculation("ngram", GuessWidths((1,) * 5), least=0.0, rows=64),
    "tree": Speculation("suffix", GuessWidths((2, 2, 1)), least=0.0, rows=64),
    "spine": Speculation("adjacent", Spine(12), least=0.0, rows=64),
}


@pytest.mark.parametrize("how", GUESSES)
def test_guesses_are_read_behind_shared_text_as_behind_ones_own(how):
    async def scenario(engine):
        # No guesses are made for whoever wants the last state.
        got, shared = await grown(engine, FORKED, frozenset({"entropy"}), max_tokens=16, temperature=0.3)
        return got, shared, engine.speculation.accepted

    (one, shared, right), (other, _, _) = both(scenario, speculate=GUESSES[how])
    assert (shared > 150, right > 0) == (True, True)
    same(one, other)


@pytest.mark.parametrize("max_batch", [3, 5, 64])
def test_those_who_come_later_stand_on_what_is_inside(max_batch):
    """Rows and common prefixes come and go at different steps, so both are moved into the gaps of others."""

    async def scenario(engine):
        async def one(i):
            ids = FORKED[i % len(FORKED)]
            for turn in range(3):
                length = 2 + (7 * i + 5 * turn) % 9
                ask = Request(ids, Sampling(max_tokens=length, seed=i, ignore_eos=True), EXTRAS)
                samples.append(((i, turn), await engine.submit(ask)))
                ids = np.concatenate([ids, samples[-1][1].actions])

        samples = []
        await asyncio.gather(*(one(i) for i in range(3 * len(FORKED))))
        return [sample for _, sample in sorted(samples, key=lambda pair: pair[0])], len(
            engine._worker.core.commons.stores
        )

    (one, left), (other, _) = both(scenario, max_batch=max_batch)
    assert left == 0
    same(one, other)


@pytest.mark.parametrize("caches", ["keep", "recompute"])
def test_new_weights_in_the_middle(caches):
    async def scenario(engine):
        knobs = Sampling(max_tokens=30, ignore_eos=True)
        runs = [engine.submit(Request(ids, knobs, EXTRAS)) for ids in FORKED]
        async for _ in runs[0]:
            await engine.pause()
            break
        await engine.update_weights(tiny.llama(seed=1).state_dict(), 7, caches=caches)
        late = [engine.submit(Request(ids, knobs, EXTRAS)) for ids in FORKED]
        await engine.resume()
        samples = [await run for run in runs + late]
        text = np.concatenate([FORKED[4], samples[len(runs) + 4].actions])
        scored = await engine.score(text, len(FORKED[4]))
        # Nobody who comes later reads what was made under other weights.
        np.testing.assert_allclose(scored.logp, samples[len(runs) + 4].logp, rtol=1e-4, atol=1e-4)
        return samples

    one, other = both(scenario, seed=3, lockstep=True)
    assert {v for sample in one for v in sample.version} == {0, 7}
    same(one, other)


@pytest.mark.parametrize("room", [16, 64, 100, 200])
def test_common_prefixes_stay_within_their_room(room):
    sizes = []

    async def scenario(engine):
        core = engine._worker.core
        core.commons.room, step = min(core.commons.room, room), core.step

        def watched():
            news = step()
            sizes.append(sum(f.slab.rows * f.slab.capacity for f in core.commons.stores))
            return news

        core.step = watched
        return (await grown(engine, FORKED))[0]

    one, other = both(scenario)
    assert max(sizes) <= room
    same(one, other)


def test_what_is_cancelled_leaves_the_others_as_they_were():
    async def scenario(engine):
        knobs = Sampling(max_tokens=30, ignore_eos=True)
        runs = [engine.submit(Request(ids, knobs, EXTRAS)) for ids in FORKED * 2]
        async for _ in runs[0]:
            await engine.pause()
            for run in runs[1::2]:
                run.stop()
            await engine.resume()
            break
        return [await run for run in runs[::2]]

    same(*both(scenario, seed=3))


def test_half_precision_shares_too():
    (one, shared), (other, _) = both(lambda e: grown(e, FORKED, temperature=0.0, max_tokens=1), dtype=torch.bfloat16)
    assert shared > 150
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.hidden, b.hidden, rtol=0.1, atol=0.15)


def test_other_models_read_all_text_for_themselves():
    (one, shared), (other, _) = both(lambda engine: grown(engine, FORKED), model=tiny.gpt2())
    assert shared == 0
    same(one, other)


pieces = st.lists(st.lists(st.integers(0, 1), max_size=5), min_size=1, max_size=10)


@settings(deadline=None, max_examples=60)
@given(pieces, st.integers(1, 3))
def test_a_chain_of_common_prefixes_spells_the_beginning_of_its_prefix(bits, count):
    """For any prefixes: what they stand on is theirs, ends before their last token, and is shared."""
    decoder = decoder_of(tiny.llama(), torch.float32, torch.device("cpu"))
    wave = [(np.repeat(np.array([1, *row]), 7).astype(np.int64) + 1, count) for row in bits]
    wave = list({ids.tobytes(): (ids, n) for ids, n in wave}.values())
    added = CommonPrefixes(decoder, 1 << 16)
    with torch.inference_mode():
        last, paid = added.add_wave(wave, PrefixCache(decoder.shapes, 0, torch.float32, decoder.device), 64)
    readers = {}
    for (ids, n), common in zip(wave, last, strict=True):
        chain = [] if common is None else common.chain
        assert len(chain) <= LEVELS
        if common is not None:
            assert common.end < len(ids)
            assert common.end % BLOCK == 0
            assert common.text.tolist() == ids[: common.end].tolist()
        for part in chain:
            readers[part] = readers.get(part, 0) + n
    assert all(n > 1 for n in readers.values())
    assert paid.sum() == sum(len(part.tokens) for part in readers)
