"""Tree attention from contiguous blocks: exact, without an N × N mask and without writing a shared prefix out.

In depth-first order the queries that may see all of a span's keys are the span's descendants, and they stand right
behind it. So tree-causal attention is, per span, one causal square (its own queries) and one unmasked rectangle (all
queries below it), merged with the running-maximum softmax of FlashAttention (Dao et al. 2022, arXiv 2205.14135). The
work is the number of (query, visible key) pairs; blocks of the same depth never share a query and go in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LONGEST = 256
"""Spans are split into pieces of at most this many tokens, so that a square wastes little above its diagonal."""
OVERHEAD = 40_000
"""What one more batch costs, in (query, key) pairs: below this, padding is cheaper than another batch."""
KEEP = 1 << 23
"""Attention weights of a layer are kept for the backward pass up to this many numbers, beyond it computed again."""


@dataclass(frozen=True, slots=True)
class Block:
    """Queries q0:q1 against keys k0:k1 of the packed row; `causal` = the square on the diagonal."""

    q0: int
    q1: int
    k0: int
    k1: int
    level: int

    @property
    def causal(self) -> bool:
        """Whether the block is a span against itself."""
        return self.q0 == self.k0


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Blocks computed in one batched product, padded to a common shape."""

    causal: bool
    count: int
    queries: int
    keys: int
    q_index: Tensor | None
    """(count · queries,) rows to gather, 0 at padding; None = the whole slice `q0:q0+queries` of a single block."""
    k_index: Tensor | None
    q0: int
    k0: int
    real: Tensor | None
    """Positions among count · queries that are no padding; None = all."""
    hidden_keys: Tensor | None
    """(count, 1, 1, keys) -inf at padded keys; None = no padding."""


def blocks(length: Sequence[int], subtree: Sequence[int]) -> list[Block]:
    """Blocks of spans laid end to end: their lengths and the tokens of their subtrees (own included)."""
    out: list[Block] = []
    above: list[tuple[int, int]] = [(-1, 0)]
    at = 0
    for n, total in zip(length, subtree, strict=True):
        while len(above) > 1 and above[-1][0] <= at:
            above.pop()
        end, depth = at + total, above[-1][1]
        for piece, start in enumerate(range(at, at + n, LONGEST)):
            stop = min(start + LONGEST, at + n)
            out.append(Block(start, stop, start, stop, depth + piece))
            if end > stop:
                out.append(Block(stop, end, start, stop, depth + piece))
        # Pieces of one span are seen by the same queries, so each is a level of its own.
        above.append((end, depth + -(-n // LONGEST)))
        at += n
    return out


def buckets(parts: Sequence[Block], device: torch.device | str = "cpu") -> list[Bucket]:
    """Batches of blocks: squares first (each query stands in exactly one), then rectangles level by level."""
    out: list[Bucket] = []
    groups: dict[tuple[bool, int], list[Block]] = {}
    for b in parts:
        groups.setdefault((not b.causal, -1 if b.causal else b.level), []).append(b)
    for key in sorted(groups):
        group = sorted(groups[key], key=lambda b: (b.q1 - b.q0, b.k1 - b.k0), reverse=True)
        out.extend(_bucket(g, device) for g in _similar(group))
    return out


def _similar(group: Sequence[Block]) -> list[list[Block]]:
    out: list[list[Block]] = []
    nq = nk = 0
    for b in group:
        q, k = b.q1 - b.q0, b.k1 - b.k0
        if out:
            wide = max(nk, k)
            wasted = (nq - q) * wide + q * (wide - k) + (wide - nk) * nq * len(out[-1])
            if wasted < OVERHEAD:
                out[-1].append(b)
                nk = wide
                continue
        out.append([b])
        nq, nk = q, k
    return out


def _bucket(group: Sequence[Block], device: torch.device | str) -> Bucket:
    first = group[0]
    q0, nq = np.array([b.q0 for b in group]), np.array([b.q1 - b.q0 for b in group])
    k0, nk = np.array([b.k0 for b in group]), np.array([b.k1 - b.k0 for b in group])
    queries, keys = int(nq.max()), int(nk.max())
    if len(group) == 1:
        return Bucket(first.causal, 1, queries, keys, None, None, first.q0, first.k0, None, None)
    q_real = np.arange(queries) < nq[:, None]
    k_real = np.arange(keys) < nk[:, None]
    q_index = np.where(q_real, q0[:, None] + np.arange(queries), 0).ravel()
    k_index = np.where(k_real, k0[:, None] + np.arange(keys), 0).ravel()
    hidden = None
    # Under the causal mask no real query reaches a padded key, which stands behind it.
    if not first.causal and not k_real.all():
        bias = np.where(k_real, 0.0, -np.inf).astype(np.float32)
        hidden = torch.from_numpy(bias)[:, None, None, :].to(device)
    real = None if q_real.all() else torch.from_numpy(np.flatnonzero(q_real)).to(device)
    return Bucket(
        first.causal, len(group), queries, keys, torch.from_numpy(q_index).to(device),
        torch.from_numpy(k_index).to(device), first.q0, first.k0, real, hidden,
    )  # fmt: skip


def tree_attention(query: Tensor, key: Tensor, value: Tensor, plan: Sequence[Bucket], scale: float) -> Tensor:
    """Attention of one packed row: query (heads, N, D), key and value (kv heads, N, D) -> (heads, N, D)."""
    return _TreeAttention.apply(query, key, value, (plan, scale))  # pyright: ignore[reportReturnType]


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, how: tuple[Sequence[Bucket], float]) -> Tensor:
        plan, scale = how
        heads, n, d = query.shape
        q = (query * scale).view(key.shape[0], -1, n, d)
        out = torch.empty_like(q)
        top, total = q.new_empty((*q.shape[:3], 1)), q.new_empty((*q.shape[:3], 1))
        keep = heads * sum(b.count * b.queries * b.keys for b in plan) <= KEEP
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
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(key), torch.zeros_like(value)
        for i, b in enumerate(ctx.plan):
            k, g = _keys(b, key), _queries(b, grad)
            if ctx.kept:
                p = ctx.kept[i][0] * (ctx.kept[i][1] - _queries(b, lse)).exp_()
            else:
                p = _scores(b, q, key).sub_(_queries(b, lse)).exp_()
            if b.real is not None:
                p.view(len(p), b.count, -1, b.queries, b.keys).mul_(_present(b, p))
            _add_keys(b, dv, p.transpose(-1, -2) @ g)
            ds = (g @ _keys(b, value).transpose(-1, -2)).sub_(_queries(b, inner)).mul_(p)
            _add_keys(b, dk, ds.transpose(-1, -2) @ _queries(b, q))
            _add_queries(b, dq, ds @ k)
        return dq.mul_(ctx.scale).view(grads[0].shape), dk, dv, None


def _queries(b: Bucket, x: Tensor) -> Tensor:
    """Rows of x (kv heads, repeats, N, D) that a bucket's queries read: (kv heads, count, repeats · queries, D)."""
    if b.q_index is None:
        return x[:, :, b.q0 : b.q0 + b.queries].reshape(len(x), 1, -1, x.shape[-1])
    rows = x.index_select(2, b.q_index).view(len(x), x.shape[1], b.count, b.queries, x.shape[-1])
    return rows.transpose(1, 2).reshape(len(x), b.count, -1, x.shape[-1])


def _keys(b: Bucket, x: Tensor) -> Tensor:
    if b.k_index is None:
        return x[:, None, b.k0 : b.k0 + b.keys]
    return x.index_select(1, b.k_index).view(len(x), b.count, b.keys, x.shape[-1])


def _scores(b: Bucket, q: Tensor, key: Tensor) -> Tensor:
    scores = _queries(b, q) @ _keys(b, key).transpose(-1, -2)
    if b.causal or b.hidden_keys is not None:
        full = scores.view(len(q), b.count, -1, b.queries, b.keys)
        full.add_(_later(b, q) if b.causal else b.hidden_keys)  # pyright: ignore[reportArgumentType]
    return scores


def _later(b: Bucket, like: Tensor) -> Tensor:
    return torch.full((b.queries, b.keys), -torch.inf, dtype=like.dtype, device=like.device).triu(1)


def _present(b: Bucket, like: Tensor) -> Tensor:
    flags = like.new_zeros(b.count * b.queries)
    flags[b.real] = 1.0
    return flags.view(b.count, 1, b.queries, 1)


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
    if b.k_index is None:
        total[:, b.k0 : b.k0 + b.keys] += part[:, 0]
    else:
        total.index_add_(1, b.k_index, part.reshape(len(part), -1, part.shape[-1]))
