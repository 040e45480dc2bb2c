"""How the queries of a packed row attend along its trees: by blocks in torch, or by FlexAttention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rolltree.policy.attention import Block, buckets, tree_attention
from rolltree.policy.flex import block_mask, flex_tree_attention
from rolltree.policy.packed import Spans

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Query (heads, Q, D), key and value (kv heads, K, D), scale -> (heads, Q, D)."""
Kernel = Literal["blocks", "flex"]


def along(spans: Spans, kernel: Kernel, device: torch.device, *, first: int = 0, keep: bool = True) -> Attend:
    """Attention of the rows from `first` on to all that they may see; `keep` allows weights kept for the way back."""
    if kernel == "flex":
        mask: Any = block_mask(spans.last(), device, first=first)
        return lambda q, k, v, scale: flex_tree_attention(q, k, v, mask, scale)
    plan = buckets(below(spans.blocks(), first), device)

    def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        # Rows before the first stand in no block as queries, so what is there is never read.
        whole = F.pad(query, (0, 0, first, 0)) if first else query
        out = tree_attention(whole, key, value, plan, scale, keep=keep)
        return out[:, first:] if first else out

    return attend


def below(parts: list[Block], first: int) -> list[Block]:
    """What is left of blocks for the queries from row `first` on, at which a span must begin."""
    if not first:
        return parts
    left = [b for b in parts if b.q1 > first]
    return [Block(max(b.q0, first), b.q1, b.k0, b.k1, b.level, b.above) for b in left]
