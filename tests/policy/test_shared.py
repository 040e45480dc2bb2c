"""Attention over shared runs and own columns against attention over one copy of everything for each row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.local.common_prefixes import levels_of
from rolltree.policy.shared import Shared, attention
from rolltree.policy.slab import LayerShape, Slab

HEADS, REPEATS, DIM, VALUE, OWN = 2, 3, 4, 5, 6


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 1 << 16), st.integers(1, 3),
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=3),
    st.lists(st.lists(st.integers(-1, 4), min_size=3, max_size=3), min_size=1, max_size=14),
)  # fmt: skip
def test_parts_put_together_are_the_whole(
    seed: int, new: int, depths: list[list[int]], choice: list[list[int]]
) -> None:
    torch.manual_seed(seed)
    rows = len(choice)
    q = torch.randn(rows, new, HEADS * REPEATS, DIM, dtype=torch.float64) * 3
    keys, values = torch.randn(rows, HEADS, OWN, DIM).double(), torch.randn(rows, HEADS, OWN, VALUE).double()
    mask = torch.zeros(rows, 1, new, OWN).double().masked_fill_(torch.rand(rows, 1, new, OWN) < 0.4, -torch.inf)
    mask[..., 0] = 0
    whole_keys, whole_values = [[keys[i]] for i in range(rows)], [[values[i]] for i in range(rows)]
    levels = []
    for depth, lengths in enumerate(depths):
        slab = Slab.zeros((LayerShape(HEADS, DIM, VALUE),), len(lengths) + 1, 9, torch.float64, torch.device("cpu"))
        for store in (slab.keys, slab.values):
            store[0].normal_()
        seen = np.array([min(row[depth], len(lengths) - 1) for row in choice], np.int64)
        levels += levels_of(slab, np.array(lengths, np.int64), seen)
        for i, run in enumerate(seen.tolist()):
            if run >= 0:
                whole_keys[i].append(slab.keys[0][run, :, : lengths[run]])
                whole_values[i].append(slab.values[0][run, :, : lengths[run]])
    got = attention(q, keys, values, mask, 0, Shared(torch.zeros(rows, dtype=torch.long), 0, tuple(levels)))
    for i in range(rows):
        k, v = torch.cat(whole_keys[i], 1), torch.cat(whole_values[i], 1)
        seen_by = torch.cat([mask[i], torch.zeros(1, new, k.shape[1] - OWN, dtype=torch.float64)], -1)
        queries = q[i].view(new, HEADS, REPEATS, DIM).permute(1, 2, 0, 3)
        share = (queries @ k[:, None].transpose(-1, -2) * DIM**-0.5 + seen_by).softmax(-1)
        truth = (share @ v[:, None]).permute(2, 0, 1, 3).reshape(new, -1)
        torch.testing.assert_close(got[i], truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("skewed", [False, True])
def test_one_run_with_very_many_readers_does_not_make_all_others_wide(skewed: bool) -> None:
    seen = np.repeat(np.arange(20), 2)
    if skewed:
        seen = np.concatenate([seen, np.full(60, 7)])
    slab = Slab.zeros((LayerShape(1, 1, 1),), 20, 4, torch.float32, torch.device("cpu"))
    levels = levels_of(slab, np.full(20, 4), seen)
    assert len(levels) == 1 + skewed
    assert sum(level.members.numel() for level in levels) <= 3 * len(seen)
