"""Tree attention on an accelerator: FlexAttention (arXiv 2412.05496) over block masks made from spans.

A token's subtree ends at a known row, so whether a block of keys is seen by a block of queries, in part or by all, is
told by the smallest and the largest end in the block: no mask of N × N is ever made. Lengths are rounded up to few
sizes inside the attention alone, so that it is compiled once and the layers around it compute no padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rolltree.tree.table import Ints

BLOCK = 128
"""Queries and keys of one block of the mask."""
LEAST = 16
"""Numbers that a head must have for the kernel of a card."""
VARIANTS = 64
"""Kinds of heads, types and gradients that one process may have programs for."""


def rounded(length: int) -> int:
    """The size that a length is padded to: at most a quarter more, four sizes for every doubling, whole blocks."""
    step = max(BLOCK, 1 << max((length - 1).bit_length() - 3, 0))
    return -(-length // step) * step


def block_mask(last: Ints, device: torch.device, *, first: int = 0) -> Any:
    """The mask in which the query at row q ≥ `first` sees the key at row k iff k ≤ q < last[k].

    Queries are counted from `first` on. Both sides are padded to `rounded` lengths; a padded query sees itself or,
    where keys end before it, the last one.
    """
    from torch.nn.attention.flex_attention import BlockMask

    n, queries, keys = len(last), rounded(len(last) - first), rounded(len(last))
    ends = np.arange(1, keys + 1)
    ends[:n] = last
    ends[-1] = first + queries + 1
    block = np.arange(keys // BLOCK)
    low, high = ends.reshape(-1, BLOCK).min(1), ends.reshape(-1, BLOCK).max(1)
    top = first + BLOCK * np.arange(queries // BLOCK)[:, None]
    bottom = top + BLOCK  # one block of queries is the rows top … bottom - 1
    seen = (block * BLOCK < bottom) & (high > top)
    whole = seen & ((block + 1) * BLOCK <= top + 1) & (low >= bottom)
    end = torch.from_numpy(ends).to(device, torch.int32)

    def visible(_b: Tensor, _h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        row = q + first_row
        return (k <= row) & (row < end[k])

    # A tensor, so that a change of it is no other program.
    first_row = torch.tensor(first, dtype=torch.int32, device=device)
    make: Any = BlockMask.from_kv_blocks
    return make(
        *_listed(seen & ~whole, device), *_listed(whole, device), BLOCK_SIZE=BLOCK, mask_mod=visible,
        seq_lengths=(queries, keys),
    )  # fmt: skip


def flex_tree_attention(query: Tensor, key: Tensor, value: Tensor, mask: Any, scale: float) -> Tensor:
    """Attention of one packed row: query (heads, Q, D), key and value (kv heads, K, D) -> (heads, Q, D)."""
    queries, keys = mask.seq_lengths
    n = query.shape[1]
    # Under autocast a rotation leaves queries and keys in float32, and values come in half precision.
    low = value.dtype
    out = compiled(query.device)(
        _padded(query.to(low), queries)[None], _padded(key.to(low), keys)[None], _padded(value, keys)[None],
        block_mask=mask, scale=scale, enable_gqa=query.shape[0] != key.shape[0],
    )  # fmt: skip
    return out[0, :, :n]


def compiled(device: torch.device) -> Callable[..., Tensor]:
    """FlexAttention as one kernel of any length on an accelerator; uncompiled on a processor, for tests."""
    from torch.nn.attention.flex_attention import flex_attention

    if device.type == "cpu":
        return flex_attention
    global _compiled  # noqa: PLW0603  (compiling is slow and belongs to the process)
    if _compiled is None:
        _compiled = _compile(flex_attention)
    return _compiled


def _compile(eager: Any) -> Any:
    """One program for all lengths; heads, types, and whether a gradient is wanted make others.

    Where these are more than torch compiles it would go on uncompiled, with a dense mask: that is an error here.
    """
    config: Any = torch._dynamo.config  # pyright: ignore[reportPrivateUsage]
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(getattr(config, limit), VARIANTS))
    return torch.compile(eager, dynamic=True, fullgraph=True)


_compiled: Any = None


def _listed(blocks: np.ndarray[Any, np.dtype[np.bool_]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Per block of queries, how many blocks of keys, and which, those first."""
    order = np.argsort(~blocks, axis=1, kind="stable").astype(np.int32)
    count = blocks.sum(1).astype(np.int32)
    return torch.from_numpy(count)[None, None].to(device), torch.from_numpy(order)[None, None].to(device)


def _padded(x: Tensor, length: int) -> Tensor:
    return F.pad(x, (0, 0, 0, length - x.shape[1]))
