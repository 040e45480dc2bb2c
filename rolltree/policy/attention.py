"""Tree attention from contiguous blocks: exact, without an N × N mask and without writing a shared prefix out.

In depth-first order the queries that may see all of a span's keys are the span's descendants, and they stand right
behind it. So tree-causal attention is, per span, one causal square (its own queries) and one unmasked rectangle (all
queries below it), merged with the running-maximum softmax of FlashAttention (Dao et al. 2022, arXiv 2205.14135). The
work is the number of (query, visible key) pairs; blocks of the same depth never share a query and go in one batch.

Where what stands above the spans of a tree is short, merging costs more than copying it: each span is then one block
against its own keys and a copy of those above it, with nothing to merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.tree.table import Ints

LONGEST = 256
"""Spans are split into pieces of at most this many tokens, so that a square wastes little above its diagonal."""
OVERHEAD = 10_000
"""What one more batch costs, in (query, key) pairs: below this, all its padding together is cheaper than another."""
COPY = 1.0
"""Keys above the spans of a tree are copied where they are at most this many times its tokens."""
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
    above: tuple[tuple[int, int], ...] | None = None
    """Keys before its own that a causal block sees too, so that nothing has to be merged; None = rectangles do that."""

    @property
    def causal(self) -> bool:
        """Whether the block is a span against itself."""
        return self.q0 == self.k0

    @property
    def whole(self) -> bool:
        """Whether its queries see all they may see in this block."""
        return self.above is not None

    @property
    def keys(self) -> Ints:
        """Rows of its keys, its own first."""
        return np.concatenate([np.arange(a, b) for a, b in ((self.k0, self.k1), *(self.above or ()))])


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Blocks computed in one batched product, padded to a common shape."""

    causal: bool
    whole: bool
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
    padded: Tensor | None
    """The others; None = none."""
    bias: Tensor | None
    """(1 or count, 1, 1 or queries, keys) -inf where a key is not seen; None = all are."""


def blocks(length: Sequence[int], subtree: Sequence[int]) -> list[Block]:
    """Blocks of spans laid end to end: their lengths and the tokens of their subtrees (own included)."""
    out: list[Block] = []
    pieces: list[_Piece] = []
    above: list[_Piece] = []
    at = 0
    for n, total in zip(length, subtree, strict=True):
        end = at + total
        while above and above[-1].end <= at:
            above.pop()
        if not above:
            out.extend(_tree_blocks(pieces))
            pieces = []
        # Pieces of one span are seen by the same queries, so each is a level of its own.
        for start in range(at, at + n, LONGEST):
            above.append(_Piece(start, min(start + LONGEST, at + n), end, tuple((p.start, p.stop) for p in above)))
            pieces.append(above[-1])
        at += n
    return out + _tree_blocks(pieces)


@dataclass(frozen=True, slots=True)
class _Piece:
    start: int
    stop: int
    end: int
    """Where the subtree ends."""
    above: tuple[tuple[int, int], ...]


def _tree_blocks(pieces: Sequence[_Piece]) -> list[Block]:
    copied = sum(b - a for p in pieces for a, b in p.above)
    if copied <= COPY * sum(p.stop - p.start for p in pieces):
        return [Block(p.start, p.stop, p.start, p.stop, len(p.above), p.above) for p in pieces]
    out: list[Block] = []
    for p in pieces:
        out.append(Block(p.start, p.stop, p.start, p.stop, len(p.above)))
        if p.end > p.stop:
            out.append(Block(p.stop, p.end, p.start, p.stop, len(p.above)))
    return out


def buckets(parts: Sequence[Block], device: torch.device | str = "cpu") -> list[Bucket]:
    """Batches of blocks: squares first (each query stands in exactly one), then rectangles level by level."""
    out: list[Bucket] = []
    groups: dict[tuple[bool, bool, int], list[Block]] = {}
    for b in parts:
        groups.setdefault((not b.causal, b.whole, -1 if b.causal else b.level), []).append(b)
    for key in sorted(groups):
        group = sorted(groups[key], key=lambda b: (b.q1 - b.q0, len(b.keys)), reverse=True)
        out.extend(_bucket(g, device) for g in _similar(group))
    return out


def _similar(group: Sequence[Block]) -> list[list[Block]]:
    out: list[list[Block]] = []
    nq = nk = lost = 0
    for b in group:
        q, k = b.q1 - b.q0, len(b.keys)
        if out:
            wide = max(nk, k)
            lost += (nq - q) * wide + q * (wide - k) + (wide - nk) * nq * len(out[-1])
            if lost < OVERHEAD:
                out[-1].append(b)
                nk = wide
                continue
        out.append([b])
        nq, nk, lost = q, k, 0
    return out


def _bucket(group: Sequence[Block], device: torch.device | str) -> Bucket:
    first = group[0]
    queries = max(b.q1 - b.q0 for b in group)
    rows = [b.keys for b in group]
    own = [b.k1 - b.k0 for b in group]
    # Causal blocks have their own keys in the first columns, padded alike, and those above behind them.
    extra = [len(r) - n for r, n in zip(rows, own, strict=True)]
    split = queries if first.causal else max(own)
    keys = split + max(extra)
    k_index, seen = np.zeros((len(group), keys), np.int64), np.zeros((len(group), 1, 1, keys), np.bool_)
    for i, (row, n, more) in enumerate(zip(rows, own, extra, strict=True)):
        k_index[i, :n], k_index[i, split : split + more] = row[:n], row[n:]
        seen[i, ..., :n] = seen[i, ..., split : split + more] = True
    if first.causal:
        # No real query reaches a padded key of its own, which stands behind it.
        seen[..., :split] = True
        seen = seen & (np.arange(keys) <= np.where(np.arange(keys) < split, np.arange(queries)[:, None], keys))
    seen = seen[:1] if (seen == seen[:1]).all() else seen
    bias = None if seen.all() else torch.from_numpy(np.where(seen, 0.0, -np.inf).astype(np.float32)).to(device)
    if len(group) == 1 and not extra[0]:
        return Bucket(first.causal, first.whole, 1, queries, keys, None, None, first.q0, first.k0, None, None, bias)
    nq = np.array([b.q1 - b.q0 for b in group])
    q_real = np.arange(queries) < nq[:, None]
    q_index = np.where(q_real, np.array([b.q0 for b in group])[:, None] + np.arange(queries), 0).ravel()
    real, padded = (
        (None, None) if q_real.all() else (torch.from_numpy(np.flatnonzero(x)).to(device) for x in (q_real, ~q_real))
    )
    return Bucket(
        first.causal, first.whole, len(group), queries, keys, torch.from_numpy(q_index).to(device),
        torch.from_numpy(k_index.ravel()).to(device), first.q0, first.k0, real, padded, bias,
    )  # fmt: skip


def tree_attention(
    query: Tensor, key: Tensor, value: Tensor, plan: Sequence[Bucket], scale: float, *, keep: bool = True
) -> Tensor:
    """Attention of one packed row: query (heads, N, D), key and value (kv heads, N, D) -> (heads, N, D).

    In half precision it runs in float32. `keep=False` never keeps attention weights for the backward pass.
    """
    if value.dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(value.device.type, enabled=False):
            out = _apply(query.float(), key.float(), value.float(), plan, scale, keep)
        return out.to(value.dtype)
    return _apply(query, key, value, plan, scale, keep)


def _apply(query: Tensor, key: Tensor, value: Tensor, plan: Sequence[Bucket], scale: float, keep: bool) -> Tensor:
    return _TreeAttention.apply(query, key, value, (plan, scale, keep))  # pyright: ignore[reportReturnType]


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
        keep = keep and heads * sum(b.count * b.queries * b.keys for b in plan) <= KEEP
        kept: list[tuple[Tensor, Tensor]] = []
        for b in plan:
            p = _scores(b, q, key)
            if b.whole:
                # Its maximum and mass stay 0 and 1: nothing is merged with it.
                p = p.softmax(-1)
                if keep:
                    kept.append((p, top))
                _put(b, _targets(b), out, _rows(b, p @ _keys(b, value)))
                continue
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
            if not b.whole:
                # A padded query has no mass, so whatever it read sends nothing back.
                shift = _queries(b, lse, padding=torch.inf)
                p = p * (ctx.kept[i][1] - shift).exp_() if ctx.kept else p.sub_(shift).exp_()
            elif not ctx.kept:
                p = p.softmax(-1)
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
