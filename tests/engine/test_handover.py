"""Prefixes that another engine has read: what they give, what is refused, and what of a radix tree arrives."""

import asyncio
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.prefix import BLOCK, PrefixCache
from rolltree.engine.local.prefix_blocks import Origin, Run, export, fingerprint, pieces, put
from rolltree.engine.prefixes import HandsOver, Offered
from rolltree.engine.protocol import Request, Sample, Sampling
from tests.engine import tiny
from tests.engine.test_prefix import CPU, SHAPES, cache, slab_of

PROMPT = np.random.default_rng(0).integers(1, 20, 70).astype(np.int32)


def asked(seed: int, prompt: Any = PROMPT, **knobs: Any) -> Request:
    return Request(prompt, Sampling(max_tokens=20, ignore_eos=True, seed=seed), frozenset({"entropy"}), **knobs)


async def handed(giver: LocalEngine, taker: LocalEngine, texts: Any = (PROMPT,), below: bool = True) -> Any:
    """A hand-over through bytes, as between processes."""
    offered, blocks = await giver.export_prefixes(texts, below=below)
    return offered, await taker.import_prefixes(pickle.loads(pickle.dumps(blocks, protocol=5)))


async def closing(work: Any, *engines: LocalEngine) -> Any:
    try:
        return await work
    finally:
        for engine in engines:
            await engine.close()


@pytest.mark.parametrize("model", [tiny.llama, tiny.gpt2], ids=["native", "foreign"])
@pytest.mark.parametrize("length", [4 * BLOCK, 70])
def test_what_was_handed_over_gives_what_reading_gives(model: Any, length: int) -> None:
    prompt = PROMPT[:length]
    giver, taker, alone = (tiny.engine(model()) for _ in range(3))

    async def work() -> None:
        first = await giver.submit(asked(0, prompt))
        longer = np.append(prompt, first.actions)
        offered, taken = await handed(giver, taker, [prompt])
        assert taken.refused == ""
        # The last token written was never read; what is left of a prompt behind its blocks is a block of its own.
        assert taken.tokens == offered.tokens == len(longer) - 1 + length % BLOCK
        assert offered.prefixes == 1 + bool(length % BLOCK)
        for text in (longer, prompt):
            got, truth = await taker.submit(asked(3, text)), await alone.submit(asked(3, text))
            assert got.prefilled == 1
            assert np.array_equal(got.actions, truth.actions)
            for name in ("logp", "sampling_logprob", "entropy"):
                assert np.allclose(getattr(got, name), getattr(truth, name), atol=1e-6), name
        assert taker.spared == len(longer) - 1
        assert giver.spared == 0

    asyncio.run(closing(work(), giver, taker, alone))
    assert isinstance(giver, HandsOver)


def test_what_stands_already_is_not_taken_again_and_is_spared_once() -> None:
    giver, taker = tiny.engine(), tiny.engine()

    async def work() -> None:
        await giver.submit(asked(0))
        await taker.submit(asked(0, PROMPT[: 2 * BLOCK]))
        had = taker.prefixes.handed
        _, taken = await handed(giver, taker)
        offered, again = await handed(giver, taker)
        assert had == 0
        assert 0 < taken.tokens < offered.tokens
        assert (again.tokens, again.refused) == (0, "")
        await taker.submit(asked(1))
        spared = taker.spared
        await taker.submit(asked(2))
        assert taker.spared == spared > 0

    asyncio.run(closing(work(), giver, taker))


def test_nothing_kept_is_nothing_offered() -> None:
    giver = tiny.engine(share_prefixes=False)

    async def work() -> None:
        await giver.submit(asked(0))
        assert await giver.export_prefixes([PROMPT], below=True) == (Offered(), None)

    asyncio.run(closing(work(), giver))


def moved(engine: LocalEngine) -> Any:
    """Its weights, one of them a little off."""
    state = {name: value.clone() for name, value in tiny.llama().state_dict().items()}
    state["model.layers.1.mlp.down_proj.weight"][3, 5] += 1e-4
    return engine.update_weights(state, 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: tiny.engine(version=3), "version"),
        (lambda: tiny.engine(tiny.llama(seed=1)), "weights"),
        (lambda: tiny.engine(dtype=torch.float64), "dtype"),
        (lambda: tiny.engine(tiny.gpt2()), "weights"),
        (lambda: tiny.engine(share_prefixes=False), "room"),
    ],
    ids=["version", "weights", "dtype", "model", "room"],
)
def test_what_does_not_fit_is_refused_with_the_reason(make: Any, why: str) -> None:
    giver, taker, alone = tiny.engine(), make(), make()

    async def work() -> None:
        await giver.submit(asked(0))
        _, taken = await handed(giver, taker)
        assert (taken.tokens, taken.refused) == (0, why)
        got, truth = await taker.submit(asked(1)), await alone.submit(asked(1))
        assert got.prefilled == len(PROMPT)
        assert np.array_equal(got.actions, truth.actions)

    asyncio.run(closing(work(), giver, taker, alone))


def test_shapes_and_torn_bytes_are_refused() -> None:
    giver, taker = tiny.engine(), tiny.engine()

    async def work() -> None:
        await giver.submit(asked(0))
        _, blocks = await giver.export_prefixes([PROMPT], below=True)
        assert blocks is not None
        (keys, values), *rest = blocks.layers
        run, *runs = blocks.runs
        other = replace(blocks.origin, shapes=(*blocks.origin.shapes, blocks.origin.shapes[0]))
        for broken, why in (
            (replace(blocks, origin=other), "shapes"),
            (replace(blocks, layers=((keys[1:], values), *rest)), "damaged"),
            (replace(blocks, layers=tuple(rest)), "damaged"),
            (replace(blocks, runs=(replace(run, parent=0), *runs)), "damaged"),
            (replace(blocks, runs=(Run(-1, BLOCK, run.tokens, run.planned), *runs)), "damaged"),
        ):
            assert await taker.import_prefixes(broken) == replace(await taker.import_prefixes(broken), tokens=0)
            assert (await taker.import_prefixes(broken)).refused == why
        assert taker.prefixes.handed == 0

    asyncio.run(closing(work(), giver, taker))


def test_weights_that_are_a_little_off_or_new_are_others() -> None:
    giver, taker = tiny.engine(), tiny.engine()

    async def work() -> None:
        await giver.update_weights(tiny.llama().state_dict(), 1)
        await moved(taker)
        await giver.submit(asked(0))
        _, taken = await handed(giver, taker)
        assert taken.refused == "weights"
        offered, blocks = await giver.export_prefixes([PROMPT])
        assert offered.tokens
        assert blocks is not None
        await giver.update_weights(tiny.llama().state_dict(), 2)
        assert (await giver.import_prefixes(blocks)).refused == "version"
        assert await giver.export_prefixes([PROMPT]) == (Offered(), None)

    asyncio.run(closing(work(), giver, taker))


def test_large_weights_are_told_apart_by_some_of_their_numbers() -> None:
    one = {"w": torch.randn(300, 300), "b": torch.zeros(3)}
    assert fingerprint(one) == fingerprint({name: one[name].clone() for name in ("b", "w")})
    assert fingerprint(one) != fingerprint({**one, "w": one["w"] * 1.0001})
    assert fingerprint(one) != fingerprint({**one, "w": one["w"].reshape(100, 900)})
    assert fingerprint(one) != fingerprint({**one, "b": one["b"].double()})


def test_a_hand_over_among_running_requests_changes_no_token() -> None:
    giver, taker, alone = tiny.engine(), tiny.engine(), tiny.engine()

    async def work() -> tuple[list[Sample], list[Sample]]:
        await asyncio.gather(*(giver.submit(asked(s)) for s in range(6)))
        runs = [taker.submit(asked(s)) for s in range(20, 30)]
        await handed(giver, taker)
        runs += [taker.submit(asked(s)) for s in range(30, 40)]
        return await asyncio.gather(*runs), await asyncio.gather(*(alone.submit(asked(s)) for s in range(20, 40)))

    for got, truth in zip(*asyncio.run(closing(work(), giver, taker, alone)), strict=True):
        assert np.array_equal(got.actions, truth.actions)


# -- the radix tree --------------------------------------------------------------------------------------------------

ORIGIN = Origin(0, "", SHAPES, "float64")
# Few tokens and long repeats, so that random texts fork inside, at and behind blocks.
texts = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([3, BLOCK, BLOCK + 5])), min_size=1, max_size=4).map(
        lambda parts: np.repeat(*np.array(parts, np.int64).T)[: 5 * BLOCK]
    ),
    min_size=1,
    max_size=8,
)


class _Shapes:
    """As much of a decoder as a hand-over looks at."""

    shapes, dtype, device = SHAPES, torch.float64, CPU


def known(kept: PrefixCache, ids: Any) -> int:
    return kept.find(ids)[0]


@settings(deadline=None, max_examples=80)
@given(texts, texts, st.sets(st.integers(0, 7)), st.booleans())
def test_all_of_a_tree_that_was_asked_for_arrives_once(stored: Any, wanted: Any, planned: Any, below: bool) -> None:
    giver, taker, decoder = cache(), cache(), _Shapes()
    giver.store([(row, 0, ids) for row, ids in enumerate(stored)], slab_of(stored), planned)
    blocks = export(giver, decoder, ORIGIN, wanted, below=below)  # type: ignore[arg-type]
    assert not blocks.damage()
    blocks = pickle.loads(pickle.dumps(blocks, protocol=5))
    new = sum(put(taker, decoder, blocks, rows) for rows in pieces(blocks, taker.size))  # type: ignore[arg-type]
    assert new == blocks.offered.tokens == taker.counts.handed
    # No block travels twice.
    ends = [tuple(text[: e + BLOCK].tolist()) for text, e in _blocks(blocks)]
    assert len(ends) == len(set(ends)) == len(blocks.layers[0][0])
    for ids in wanted:
        whole = known(giver, ids)
        assert known(taker, ids) >= whole // BLOCK * BLOCK
        if below:
            ending = [text for text in stored if len(text) >= len(ids) and np.array_equal(text[: len(ids)], ids)]
            assert all(known(taker, text) == known(giver, text) for text in ending)
    # What arrived is what stood there, token for token.
    rows = [*stored, *wanted]
    found = [taker.find(ids) for ids in rows]
    target, truth = slab_of([np.zeros(0, np.int64)] * len(rows)), slab_of(rows)
    taker.restore([slots for _, slots in found], target, 0)
    for row, (length, _) in enumerate(found):
        for a, b in zip(target.keys + target.values, truth.keys + truth.values, strict=True):
            assert torch.equal(a[row, :, :length], b[row, :, :length])


def _blocks(blocks: Any) -> list[tuple[Any, int]]:
    out, whole = [], []
    for run in blocks.runs:
        above = whole[run.parent][: run.start] if run.parent >= 0 else run.tokens[:0]
        whole.append(np.concatenate([above, run.tokens]))
        out += [(whole[-1], at) for at in range(run.start, len(whole[-1]), BLOCK)]
    return out


@settings(deadline=None, max_examples=30)
@given(texts, st.integers(1, 6))
def test_a_small_pool_takes_what_it_has_room_for_and_never_a_wrong_token(stored: Any, room: int) -> None:
    giver, taker, decoder = cache(), cache(room * BLOCK), _Shapes()
    giver.store([(row, 0, ids) for row, ids in enumerate(stored)], slab_of(stored))
    blocks = export(giver, decoder, ORIGIN, stored, below=True)  # type: ignore[arg-type]
    for rows in pieces(blocks, taker.size):
        put(taker, decoder, blocks, rows)  # type: ignore[arg-type]
    assert 0 < taker.counts.handed <= room * BLOCK
    target, truth = slab_of([np.zeros(0, np.int64)] * len(stored)), slab_of(stored)
    found = [taker.find(ids) for ids in stored]
    taker.restore([slots for _, slots in found], target, 0)
    for row, (length, _) in enumerate(found):
        for a, b in zip(target.keys + target.values, truth.keys + truth.values, strict=True):
            assert torch.equal(a[row, :, :length], b[row, :, :length])


def test_forks_to_come_stay_marked() -> None:
    rng = np.random.default_rng(1)
    stored = [rng.integers(0, 9, 3 * BLOCK) for _ in range(4)]
    giver, taker, decoder = cache(), cache(12 * BLOCK), _Shapes()
    giver.store([(row, 0, ids) for row, ids in enumerate(stored)], slab_of(stored), {2})
    blocks = export(giver, decoder, ORIGIN, stored, below=True)  # type: ignore[arg-type]
    for rows in pieces(blocks, taker.size):
        put(taker, decoder, blocks, rows)  # type: ignore[arg-type]
    others = [rng.integers(0, 9, 3 * BLOCK) for _ in range(3)]
    for ids in others:
        taker.store([(0, 0, ids)], slab_of([ids]))
    # Nine blocks went for others; those of the text that will be forked are not among them.
    assert [known(taker, ids) for ids in stored].count(3 * BLOCK) == 1
    assert known(taker, stored[2]) == 3 * BLOCK
