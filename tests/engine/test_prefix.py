"""The prefix cache against a list of everything stored."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.local.prefix import BLOCK, PrefixCache
from rolltree.policy.slab import LayerShape, Slab

SHAPES = (LayerShape(2, 3, 4), LayerShape(1, 2, 2))
CPU = torch.device("cpu")
COLUMNS = 5 * BLOCK


def cache(tokens=64 * BLOCK):
    return PrefixCache(SHAPES, tokens, torch.float64, CPU)


def slab_of(rows):
    """Caches whose content at a position is a hash of the tokens up to it, so a wrong block shows."""
    slab = Slab.zeros(SHAPES, len(rows), COLUMNS, torch.float64, CPU)
    for row, ids in enumerate(rows):
        slab_of_row = torch.tensor([hash(tuple(ids[: i + 1].tolist())) % 9973 for i in range(len(ids))]).double()
        for store in (slab.keys, slab.values):
            for t in store:
                t[row, :, : len(ids)] = slab_of_row[None, :, None]
    return slab


# Two tokens only, so that random sequences share long prefixes by construction of repeats.
sequences = st.lists(
    st.lists(st.integers(0, 1), min_size=0, max_size=3).map(
        lambda bits: np.array([b for bit in bits for b in [bit] * (BLOCK - 3)], np.int64)
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(sequences, sequences)
def test_what_is_found_is_exact_and_as_long_as_anything_stored(stored, asked):
    kept = cache()
    kept.store([(row, 0, ids) for row, ids in enumerate(stored)], slab_of(stored))
    target = slab_of([np.zeros(0, np.int64)] * len(asked))
    found = [kept.find(ids) for ids in asked]
    kept.restore([slots for _, slots in found], target, 0)
    truth = slab_of(asked)
    for row, (ids, (length, _)) in enumerate(zip(asked, found, strict=True)):
        best = max(_common(ids, other) for other in stored)
        assert length == best
        for a, b in zip(target.keys + target.values, truth.keys + truth.values, strict=True):
            assert torch.equal(a[row, :, :length], b[row, :, :length])


def test_memory_that_was_never_written_is_never_handed_out(monkeypatch):
    """Attention multiplies what it masks by zero, so a row must not even hold what nobody reads."""
    unwritten = Slab.unwritten

    def poisoned(*shape):
        slab = unwritten(*shape)
        for t in (*slab.keys, *slab.values):
            t.fill_(torch.nan)
        return slab

    monkeypatch.setattr(Slab, "unwritten", poisoned)
    kept = cache()
    ids = np.arange(2 * BLOCK + 3)
    kept.store([(0, 0, ids)], Slab.zeros(SHAPES, 1, COLUMNS, torch.float64, CPU))
    target = Slab.zeros(SHAPES, 3, COLUMNS, torch.float64, CPU)
    kept.restore([kept.find(asked)[1] for asked in (ids, ids[:2], ids[:0])], target, 0)
    assert all(t.isfinite().all() for t in (*target.keys, *target.values))


def _common(a, b):
    n = min(len(a), len(b))
    return n if (a[:n] == b[:n]).all() else int((a[:n] == b[:n]).argmin())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=30), st.integers(1, 6))
def test_a_small_pool_forgets_the_oldest_and_never_lies(steps, blocks):
    kept = cache(blocks * BLOCK)
    for token, length in steps:
        ids = np.repeat(np.arange(token, token + length), BLOCK).astype(np.int64)
        slab = slab_of([ids])
        kept.store([(0, 0, ids)], slab)
        found, slots = kept.find(ids)
        assert found == min(len(ids), blocks * BLOCK)
        target = slab_of([np.zeros(0, np.int64)])
        kept.restore([slots], target, 0)
        assert torch.equal(target.keys[0][:, :, :found], slab.keys[0][:, :, :found])


def test_the_recently_used_survives():
    kept = cache(2 * BLOCK)
    a, b, c = (np.full(BLOCK, token, np.int64) for token in (1, 2, 3))
    for ids in (a, b):
        kept.store([(0, 0, ids)], slab_of([ids]))
    kept.find(a)
    kept.store([(0, 0, c)], slab_of([c]))
    assert [kept.find(ids)[0] for ids in (a, b, c)] == [BLOCK, 0, BLOCK]


def test_clearing_forgets_everything():
    kept, ids = cache(), np.arange(20)
    kept.store([(0, 0, ids)], slab_of([ids]))
    kept.clear()
    assert kept.find(ids) == (0, [])


def filled(kept, tokens, *, planned=False):
    for token in tokens:
        ids = np.full(BLOCK, token, np.int64)
        kept.store([(0, 0, ids)], slab_of([ids]), {0} if planned else ())


def there(kept, token):
    return kept.find(np.full(BLOCK, token, np.int64))[0] == BLOCK


def test_what_is_to_be_forked_outlives_what_is_not():
    kept = cache(4 * BLOCK)
    filled(kept, [1, 2], planned=True)
    filled(kept, range(3, 20))
    assert there(kept, 1)
    assert there(kept, 2)
    assert there(kept, 19)
    assert not there(kept, 3)
    assert (kept.counts.evicted, kept.counts.evicted_planned) == (15, 0)


def test_plans_take_no_more_than_half_where_others_want_room():
    kept = cache(4 * BLOCK)
    filled(kept, range(1, 6), planned=True)
    filled(kept, range(6, 9))
    assert [token for token in range(1, 9) if there(kept, token)] == [4, 5, 7, 8]
    assert kept.counts.evicted_planned == 3


def test_what_stands_above_a_planned_fork_stays_with_it():
    kept = cache(4 * BLOCK)
    ids = np.repeat(np.arange(2), BLOCK).astype(np.int64)
    kept.store([(0, 0, ids[:BLOCK])], slab_of([ids]))
    kept.store([(0, 0, ids)], slab_of([ids]), {0})
    filled(kept, range(3, 20))
    assert kept.find(ids)[0] == len(ids)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), min_size=1, max_size=30), st.integers(4, 8)
)
def test_plans_or_not_nothing_wrong_is_found(steps, blocks):
    kept = cache(blocks * BLOCK)
    for token, length, planned in steps:
        ids = np.repeat(np.arange(token, token + length), BLOCK).astype(np.int64)
        kept.store([(0, 0, ids)], slab_of([ids]), {0} if planned else ())
        assert len(kept._order) + len(kept._planned) <= blocks
        found, slots = kept.find(ids)
        target = slab_of([np.zeros(0, np.int64)])
        kept.restore([slots], target, 0)
        assert torch.equal(target.keys[0][:, :, :found], slab_of([ids]).keys[0][:, :, :found])


@settings(deadline=None, max_examples=60)
@given(sequences, sequences)
def test_what_is_known_are_the_blocks_of_what_is_found_and_asking_changes_nothing(stored, asked):
    kept = cache()
    kept.store([(row, 0, ids) for row, ids in enumerate(stored)], slab_of(stored))
    order = list(kept._order)
    known = [kept.known(ids) for ids in asked]
    assert list(kept._order) == order
    assert (kept.counts.asked, kept.counts.found) == (0, 0)
    for ids, here in zip(asked, known, strict=True):
        assert here % BLOCK == 0 or here == len(ids)
        assert 0 <= kept.find(ids)[0] - here < BLOCK
