"""Rows keep what is in use through any changes of shape, and memory once taken for a room is enough for it."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.policy.slab import LayerShape, Slab

SHAPES = (LayerShape(2, 3, 4), LayerShape(1, 4, 2), LayerShape(2, 3, 4))
ROOM = 12


def empty(shapes: tuple[LayerShape, ...] = SHAPES) -> Slab:
    return Slab.zeros(shapes, 0, 0, torch.float64, torch.device("cpu"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, ROOM), st.integers(0, ROOM)), min_size=1, max_size=8))
def test_what_is_in_use_survives_and_nothing_else_is_read(steps: list[tuple[int, int, int]]) -> None:
    slab, truth = empty(), empty()
    rows = columns = 0
    for number, (new_rows, capacity, width) in enumerate(steps):
        rows, columns = min(rows, new_rows), min(columns, capacity)
        slab.resize(new_rows, capacity, rows, columns, room=ROOM)
        fresh = Slab.zeros(SHAPES, new_rows, capacity, torch.float64, torch.device("cpu"))
        for have, old, new in zip(
            slab.keys + slab.values, truth.keys + truth.values, fresh.keys + fresh.values, strict=True
        ):
            new[:rows, :, :columns] = old[:rows, :, :columns]
            assert torch.equal(have[:rows], new[:rows])
        rows, columns = new_rows, min(width, capacity)
        for have, new in zip(slab.keys + slab.values, fresh.keys + fresh.values, strict=True):
            have[:rows, :, :columns] = new[:rows, :, :columns] = number + torch.rand(columns, 1, dtype=torch.float64)
        truth = fresh


def test_no_memory_is_taken_while_the_room_is_large_enough() -> None:
    slab = empty((LayerShape(2, 3, 3),) * 3)
    for capacity in (2, ROOM):
        slab.resize(3, capacity, 0, 0, room=ROOM)
    assert slab.spare is not None
    held = {t.untyped_storage().data_ptr() for t in (*slab.keys, *slab.values, slab.spare)}
    for capacity in (5, 1, ROOM, 7):
        slab.resize(3, capacity, 3, 1, room=ROOM)
        assert slab.spare is not None
        assert {t.untyped_storage().data_ptr() for t in (*slab.keys, *slab.values, slab.spare)} <= held


def test_a_wiped_row_is_finite_again_and_its_neighbours_are_untouched() -> None:
    slab = Slab.zeros(SHAPES, 2, 4, torch.float64, torch.device("cpu"))
    for t in (*slab.keys, *slab.values):
        t[0], t[1] = 1.0, torch.nan
    slab.wipe(1)
    assert all(bool((t[0] == 1).all()) and bool((t[1] == 0).all()) for t in (*slab.keys, *slab.values))
