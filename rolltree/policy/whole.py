"""Attention of blocks whose queries see all they may see in them: gathered once, one batched product each way.

Where what stands above leaves is short, each leaf is one block against a copy of it (`rolltree.policy.blocks`), and
nothing is merged. Rows of heads are then gathered for all batches in one call, and results are gathered back: every
query stands in exactly one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rolltree.policy.blocks import Bucket


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where rows of heads stand: (N · heads, D) against all batches end to end, each (kv heads, count, rows, D)."""

    queries: Tensor
    keys: Tensor
    back: Tensor
    """(N · heads,) where each row's query stands; 0 where it stands in no block."""
    padded: Tensor | None
    """Queries that are padding; None = none."""
    idle: Tensor | None
    """Rows of heads whose query stands in no block; None = none."""


class WholeBlocks:
    """The batches of a plan that are whole, and their rows by numbers of heads."""

    def __init__(self, parts: Sequence[Bucket], device: torch.device | str = "cpu") -> None:
        self.parts, self._device = parts, device
        self._places: dict[tuple[int, int, int], _Places] = {}

    def places(self, rows: int, heads: int, repeats: int) -> _Places:
        """For so many rows of `heads` key heads, each shared by `repeats` query heads."""
        asked = rows, heads, repeats
        if asked not in self._places:
            self._places[asked] = self._placed(*asked)
        return self._places[asked]

    def each(self, heads: int, repeats: int) -> Iterator[tuple[Bucket, slice, slice]]:
        """Every batch with its slices of all gathered queries and keys."""
        q = k = 0
        for b in self.parts:
            more_q, more_k = heads * repeats * b.count * b.queries, heads * b.count * b.keys
            yield b, slice(q, q + more_q), slice(k, k + more_k)
            q, k = q + more_q, k + more_k

    def _placed(self, rows: int, heads: int, repeats: int) -> _Places:
        every = heads * repeats
        head = torch.arange(every, device=self._device).view(heads, 1, repeats, 1)
        queries, keys, real = list[Tensor](), list[Tensor](), list[Tensor]()
        for b in self.parts:
            q, k = self._rows(b.q_index, b.q0, b.queries), self._rows(b.k_index, b.k0, b.keys)
            at = q.view(1, b.count, 1, b.queries) * every + head
            true = torch.ones_like(q, dtype=torch.bool)
            if b.padded is not None:
                true[b.padded] = False
            queries.append(at.flatten())
            real.append(true.view(1, b.count, 1, b.queries).expand_as(at).flatten())
            keys.append((k * heads + head.flatten()[:heads, None]).flatten())
        asked, true = torch.cat(queries), torch.cat(real)
        back = torch.full((rows * every,), -1, device=self._device)
        back[asked[true]] = torch.nonzero(true).squeeze(1)
        padded, idle = (torch.nonzero(x).squeeze(1) for x in (~true, back < 0))
        return _Places(
            asked, torch.cat(keys), back.clamp_(min=0), padded if len(padded) else None, idle if len(idle) else None
        )

    def _rows(self, index: Tensor | None, first: int, count: int) -> Tensor:
        return torch.arange(first, first + count, device=self._device) if index is None else index


def whole_attention(query: Tensor, key: Tensor, value: Tensor, plan: WholeBlocks, scale: float, keep: bool) -> Tensor:
    """Query (heads, N, D), key and value (kv heads, N, D) -> (heads, N, D); rows in no block hold anything."""
    return _WholeAttention.apply(query, key, value, (plan, scale, keep))  # pyright: ignore[reportReturnType]


class _WholeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, how: tuple[WholeBlocks, float, bool]) -> Tensor:
        plan, scale, keep = how
        heads, n, d = query.shape
        kv, repeats = len(key), heads // len(key)
        at = plan.places(n, kv, repeats)
        q = _flat(query).index_select(0, at.queries).mul_(scale)
        k, v = _flat(key).index_select(0, at.keys), _flat(value).index_select(0, at.keys)
        out = torch.empty_like(q)
        kept: list[Tensor] = []
        for b, mine, theirs in plan.each(kv, repeats):
            p = _weights(b, _batched(b, q[mine], kv), _batched(b, k[theirs], kv))
            torch.bmm(p, _batched(b, v[theirs], kv), out=_batched(b, out[mine], kv))
            if keep:
                kept.append(p)
        ctx.save_for_backward(query, key, value)
        ctx.how, ctx.kept = how, kept
        return out.index_select(0, at.back).view(n, heads, d).transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value = ctx.saved_tensors
        plan, scale, _ = ctx.how
        heads, n, d = query.shape
        kv, repeats = len(key), heads // len(key)
        at: _Places = plan.places(n, kv, repeats)
        grad = _flat(grads[0]).index_select(0, at.queries)
        if at.padded is not None:
            grad.index_fill_(0, at.padded, 0.0)
        q = _flat(query).index_select(0, at.queries).mul_(scale)
        k, v = _flat(key).index_select(0, at.keys), _flat(value).index_select(0, at.keys)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for i, (b, mine, theirs) in enumerate(plan.each(kv, repeats)):
            qb, gb = (_batched(b, x[mine], kv) for x in (q, grad))
            kb, vb = (_batched(b, x[theirs], kv) for x in (k, v))
            p = ctx.kept[i] if ctx.kept else _weights(b, qb, kb)
            torch.bmm(p.transpose(1, 2), gb, out=_batched(b, dv[theirs], kv))
            ds = torch.ops.aten._softmax_backward_data(torch.bmm(gb, vb.transpose(1, 2)), p, -1, p.dtype)
            torch.bmm(ds.transpose(1, 2), qb, out=_batched(b, dk[theirs], kv))
            torch.bmm(ds, kb, out=_batched(b, dq[mine], kv))
        to_keys, to_values = (x.new_zeros(n * kv, d).index_add_(0, at.keys, x) for x in (dk, dv))
        asked = dq.index_select(0, at.back).mul_(scale)
        if at.idle is not None:
            asked.index_fill_(0, at.idle, 0.0)
        dq, dk, dv = (x.view(n, -1, d).transpose(0, 1) for x in (asked, to_keys, to_values))
        return dq, dk, dv, None


def _weights(b: Bucket, q: Tensor, k: Tensor) -> Tensor:
    scores = torch.bmm(q, k.transpose(1, 2))
    if b.bias is not None:
        scores.view(-1, b.count, q.shape[1] // b.queries, b.queries, b.keys).add_(b.bias)
    return scores.softmax(-1)


def _batched(b: Bucket, rows: Tensor, heads: int) -> Tensor:
    return rows.view(heads * b.count, -1, rows.shape[-1])


def _flat(x: Tensor) -> Tensor:
    """(heads, N, D) as rows of heads (N · heads, D); a view where tokens come first in memory."""
    return x.transpose(0, 1).reshape(-1, x.shape[-1])
