"""The block mask that FlexAttention skips by is the mask it stands for, and the kernel says what torch says."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig

from rolltree.errors import ModelError
from rolltree.policy import flex
from rolltree.policy.attention import along
from rolltree.policy.language import suited
from rolltree.policy.packed import pack
from rolltree.tree import Tree
from rolltree.tree.table import table

CPU, CARD = torch.device("cpu"), torch.device("cuda")


def grown(rng: random.Random, trees: int, longest: int) -> list[Tree]:
    """Trees whose nodes are shorter and longer than a block."""
    out: list[Tree] = []
    for i in range(trees):
        tree = Tree(f"t{i}", [1] * rng.randint(1, longest))
        for _ in range(rng.randint(1, 8)):
            tree.extend(rng.choice(list(tree.nodes)), [2] * rng.randint(1, longest))
        out.append(tree)
    return out


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([3, 40, 200]), st.floats(0, 0.99))
def test_block_masks_are_the_mask_of_the_spans(seed: int, trees: int, longest: int, share: float) -> None:
    view = table(grown(random.Random(seed), trees, longest))
    packed = pack(view, view.loss_mask)
    last, n = packed.spans.last(), len(packed)
    first = int(share * n)
    mask = flex.block_mask(last, CPU, first=first)
    queries, keys = mask.seq_lengths
    row, key = torch.arange(queries)[:, None], torch.arange(keys)
    seen = mask.mask_mod(None, None, row, key)
    real = first + np.arange(n - first)[:, None]
    wanted = (np.arange(n) <= real) & (real < last)
    assert np.array_equal(seen[: n - first, :n].numpy(), wanted)
    assert not seen[: n - first, n:].any(), "a padded key is seen"
    assert seen.any(1).all(), "a padded query that sees nothing has no softmax"
    blocks = seen.view(queries // flex.BLOCK, flex.BLOCK, keys // flex.BLOCK, flex.BLOCK).transpose(1, 2)
    some, full = blocks.flatten(2).any(-1), blocks.flatten(2).all(-1)
    part, whole = (listed(mask, name) for name in ("kv", "full_kv"))
    assert not (part & whole).any()
    assert not (some & ~(part | whole)).any(), "a block with something to see is skipped"
    assert not (whole & ~full).any(), "a block is taken for whole that is not"
    # Nothing is looked at in vain but what a cut inside a block leaves.
    if first % flex.BLOCK == 0:
        assert torch.equal(part | whole, some)


def listed(mask: object, kind: str) -> torch.Tensor:
    """Blocks of queries by blocks of keys, out of the mask's lists."""
    count, index = (getattr(mask, f"{kind}_{what}")[0, 0] for what in ("num_blocks", "indices"))
    out = torch.zeros(index.shape, dtype=torch.bool)
    for i, row in enumerate(index):
        out[i, row[: count[i]].long()] = True
    return out


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_attention_equals_the_blocks_of_torch(share: float) -> None:
    """Forward only: FlexAttention has no backward pass on a processor."""
    view = table(grown(random.Random(5), 2, 120))
    packed = pack(view, view.loss_mask)
    n = len(packed)
    # A span must begin where queries do.
    starts = np.cumsum(packed.spans.length) - packed.spans.length
    first = int(starts[np.searchsorted(starts, int(share * n))])
    torch.manual_seed(0)
    q, k, v = (torch.randn(h, n, 8) for h in (4, 2, 2))
    blocks, kernel = (along(packed.spans, how, CPU, first=first)(q[:, first:], k, v, 0.3) for how in ("blocks", "flex"))
    assert kernel.shape == (4, n - first, 8)
    assert torch.allclose(blocks, kernel, atol=2e-6)


def test_lengths_come_in_few_sizes_with_little_padding() -> None:
    sizes = {flex.rounded(n) for n in range(1, 32_769)}
    assert len(sizes) <= 4 * 6 + 8
    for n in range(1, 32_769, 17):
        assert n <= flex.rounded(n) <= max(flex.BLOCK, 1.25 * n + flex.BLOCK)
        assert flex.rounded(n) % flex.BLOCK == 0


def test_narrow_heads_are_read_in_blocks_on_a_card() -> None:
    wide, narrow = (LlamaConfig(hidden_size=4 * n, num_attention_heads=4) for n in (16, 12))
    assert [suited("auto", where, c) for where in (CPU, CARD) for c in (wide, narrow)] == [
        "blocks", "blocks", "flex", "blocks",
    ]  # fmt: skip
    assert suited("auto", CARD, LlamaConfig(hidden_size=24, num_attention_heads=4, head_dim=16)) == "flex"
    assert suited("flex", CPU, narrow) == "flex"
    assert suited("blocks", CARD, wide) == "blocks"
    with pytest.raises(ModelError, match="'flex' takes heads of 16 numbers or more, and this llama model's have 12"):
        suited("flex", CARD, narrow)


def test_a_model_on_the_processor_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with a card."""
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert flex.compiled(CPU) is flex_attention
