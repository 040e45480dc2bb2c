"""Tree attention: exact, without an N × N mask and without writing a shared prefix out.

The blocks of a packed row (`rolltree.policy.blocks`) are computed batch by batch and merged with the running-maximum
softmax of FlashAttention (Dao et al. 2022, arXiv 2205.14135). The work is the number of (query, visible key) pairs. On
a card FlexAttention does the same from a block mask; `along` is the one place that knows of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rolltree.policy.blocks import Block, Bucket, buckets
from rolltree.policy.flex import block_mask, flex_tree_attention
from rolltree.policy.packed import Spans
from rolltree.policy.whole import WholeBlocks, whole_attention

KEEP = 1 << 23
"""Attention weights of a layer are kept for the backward pass up to this many numbers, beyond it computed again."""

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Query (heads, Q, D), key and value (kv heads, K, D), scale -> (heads, Q, D)."""
Kernel = Literal["blocks", "flex"]


def along(spans: Spans, kernel: Kernel, device: torch.device, *, first: int = 0, keep: bool = True) -> Attend:
    """Attention of the rows from `first` on to all that they may see; `keep` allows weights kept for the way back."""
    if kernel == "flex":
        mask: Any = block_mask(spans.last(), device, first=first)
        return lambda q, k, v, scale: flex_tree_attention(q, k, v, mask, scale)
    plan = planned(below(spans.blocks(), first), device)

    def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        # Rows before the first stand in no block as queries, so what is there is never read.
        whole = F.pad(query, (0, 0, first, 0)) if first else query
        out = tree_attention(whole, key, value, plan, scale, keep=keep)
        return out[:, first:] if first else out

    return attend


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The batches that attention of one row is made of."""

    merged: Sequence[Bucket]
    """Those whose results are merged."""
    whole: WholeBlocks | None
    """Those with nothing to merge; None = there are none."""
    owned: Tensor | None
    """(N,) which queries stand in whole blocks, where there are both kinds."""
    pairs: int
    """Queries times keys of all batches, padding included."""


def planned(parts: list[Block], device: torch.device | str = "cpu") -> Plan:
    """The batches of these blocks."""
    batches = buckets(parts, device)
    merged, whole = [b for b in batches if not b.whole], [b for b in batches if b.whole]
    owned = None
    if merged and whole:
        owned = torch.zeros(max(b.q1 for b in parts), dtype=torch.bool)
        for b in parts:
            owned[b.q0 : b.q1] |= b.whole
        owned = owned.to(device)
    pairs = sum(b.count * b.queries * b.keys for b in batches)
    return Plan(merged, WholeBlocks(whole, device) if whole else None, owned, pairs)


def below(parts: list[Block], first: int) -> list[Block]:
    """What is left of blocks for the queries from row `first` on, at which a span must begin."""
    if not first:
        return parts
    left = [b for b in parts if b.q1 > first]
    return [Block(max(b.q0, first), b.q1, b.k0, b.k1, b.level, b.above) for b in left]


def tree_attention(query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float, *, keep: bool = True) -> Tensor:
    """Attention of one packed row: query (heads, N, D), key and value (kv heads, N, D) -> (heads, N, D).

    In half precision it runs in float32. `keep=False` never keeps attention weights for the backward pass.
    """
    if value.dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(value.device.type, enabled=False):
            out = _apply(query.float(), key.float(), value.float(), plan, scale, keep)
        return out.to(value.dtype)
    return _apply(query, key, value, plan, scale, keep)


def _apply(query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float, keep: bool) -> Tensor:
    keep = keep and len(query) * plan.pairs <= KEEP
    if plan.whole is None:
        return _TreeAttention.apply(query, key, value, (plan.merged, scale, keep))  # pyright: ignore[reportReturnType]
    out = whole_attention(query, key, value, plan.whole, scale, keep)
    if plan.owned is None:
        return out
    merged: Any = _TreeAttention.apply(query, key, value, (plan.merged, scale, keep))
    return torch.where(plan.owned[:, None], out, merged)


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, how: tuple[Sequence[Bucket], float, bool]
    ) -> Tensor:
        plan, scale, keep = how
        heads, n, d = query.shape
        q = (query * scale).view(key.shape[0], -1, n, d)
        out = torch.empty_like(q)
        top, total = q.new_zeros((*q.shape[:3], 1)), q.new_ones((*q.shape[:3], 1))
        kept: list[tuple[Tensor, Tensor]] = []
        for b in plan:
            p = _scores(b, q, key)
            high = p.amax(-1, keepdim=True)
            p.sub_(high).exp_()
            if keep:
                kept.append((p, high))
            part, mass = p @ _keys(b, value), p.sum(-1, keepdim=True)
            _merge(b, (out, top, total), (_rows(b, part), _rows(b, high), _rows(b, mass)))
        out.div_(total)
        ctx.save_for_backward(q, key, value, out, top.add_(total.log_()))
        ctx.plan, ctx.scale, ctx.kept = plan, scale, kept
        return out.view(heads, n, d)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, key, value, out, lse = ctx.saved_tensors
        grad = grads[0].reshape(out.shape)
        inner = (grad * out).sum(-1, keepdim=True)
        # Tokens first, as the layers around have them: adding rows is then adding contiguous memory.
        dq, dk, dv = torch.zeros_like(q), *(x.new_zeros(x.shape[1], len(x), x.shape[2]) for x in (key, value))
        for i, b in enumerate(ctx.plan):
            p = ctx.kept[i][0] if ctx.kept else _scores(b, q, key)
            # A padded query has no mass, so whatever it read sends nothing back.
            shift = _queries(b, lse, padding=torch.inf)
            p = p * (ctx.kept[i][1] - shift).exp_() if ctx.kept else p.sub_(shift).exp_()
            g = _queries(b, grad, padding=0.0)
            _add_keys(b, dv, p.transpose(-1, -2) @ g)
            ds = (g @ _keys(b, value).transpose(-1, -2)).sub_(_queries(b, inner, padding=0.0)).mul_(p)
            _add_keys(b, dk, ds.transpose(-1, -2) @ _queries(b, q))
            _add_queries(b, dq, ds @ _keys(b, key))
        return dq.mul_(ctx.scale).view(grads[0].shape), dk.transpose(0, 1), dv.transpose(0, 1), None


def _queries(b: Bucket, x: Tensor, padding: float | None = None) -> Tensor:
    """Rows of x (kv heads, repeats, N, D) that a bucket's queries read: (kv heads, count, repeats · queries, D)."""
    if b.q_index is None:
        return x[:, :, b.q0 : b.q0 + b.queries].reshape(len(x), 1, -1, x.shape[-1])
    picked = x.index_select(2, b.q_index)
    if padding is not None and b.padded is not None:
        picked.index_fill_(2, b.padded, padding)
    rows = picked.view(len(x), x.shape[1], b.count, b.queries, x.shape[-1])
    return rows.transpose(1, 2).reshape(len(x), b.count, -1, x.shape[-1])


def _keys(b: Bucket, x: Tensor) -> Tensor:
    if b.k_index is None:
        return x[:, None, b.k0 : b.k0 + b.keys]
    return x.index_select(1, b.k_index).view(len(x), b.count, b.keys, x.shape[-1])


def _scores(b: Bucket, q: Tensor, key: Tensor) -> Tensor:
    scores = _queries(b, q) @ _keys(b, key).transpose(-1, -2)
    if b.bias is not None:
        scores.view(len(q), b.count, -1, b.queries, b.keys).add_(b.bias)
    return scores


def _rows(b: Bucket, x: Tensor) -> Tensor:
    """Back from (kv heads, count, repeats · queries, D) to (kv heads, repeats, real queries, D)."""
    out = x.view(len(x), b.count, -1, b.queries, x.shape[-1]).transpose(1, 2)
    out = out.reshape(len(x), out.shape[1], b.count * b.queries, x.shape[-1])
    return out if b.real is None else out.index_select(2, b.real)


def _targets(b: Bucket) -> Tensor | None:
    return b.q_index if b.q_index is None or b.real is None else b.q_index[b.real]


def _merge(b: Bucket, whole: tuple[Tensor, Tensor, Tensor], part: tuple[Tensor, Tensor, Tensor]) -> None:
    """Fold one bucket's unnormalised output, maximum and mass into the running ones."""
    index = _targets(b)
    if b.causal:
        for x, new in zip(whole, part, strict=True):
            _put(b, index, x, new)
        return
    out, top, total = (_take(b, index, x) for x in whole)
    new, high, mass = part
    best = torch.maximum(top, high)
    before, now = (top - best).exp_(), (high - best).exp_()
    _put(b, index, whole[0], (out * before).add_(new.mul_(now)))
    _put(b, index, whole[1], best)
    _put(b, index, whole[2], (total * before).add_(mass.mul_(now)))


def _take(b: Bucket, index: Tensor | None, x: Tensor) -> Tensor:
    return x[:, :, b.q0 : b.q0 + b.queries] if index is None else x.index_select(2, index)


def _put(b: Bucket, index: Tensor | None, x: Tensor, new: Tensor) -> None:
    if index is None:
        x[:, :, b.q0 : b.q0 + b.queries] = new
    else:
        x.index_copy_(2, index, new)


def _add_queries(b: Bucket, total: Tensor, part: Tensor) -> None:
    index, rows = _targets(b), _rows(b, part)
    if index is None:
        total[:, :, b.q0 : b.q0 + b.queries] += rows
    else:
        total.index_add_(2, index, rows)


def _add_keys(b: Bucket, total: Tensor, part: Tensor) -> None:
    """Add (kv heads, count, keys, D) to (N, kv heads, D)."""
    if b.k_index is None:
        total[b.k0 : b.k0 + b.keys] += part[:, 0].transpose(0, 1)
    else:
        total.flatten(1).index_add_(0, b.k_index, part.permute(1, 2, 0, 3).reshape(len(b.k_index), -1))
