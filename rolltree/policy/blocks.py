"""Which queries meet which keys: the contiguous blocks that tree attention is made of.

In depth-first order the queries that may see all of a span's keys are the span's descendants, and they stand right
behind it. So tree-causal attention is, per span, one causal square (its own queries) and one unmasked rectangle (all
queries below it). Blocks of the same depth never share a query and go in one batch.

Where what stands above the spans of a tree is short, merging costs more than copying it: each span is then one block
against its own keys and a copy of those above it, with nothing to merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
