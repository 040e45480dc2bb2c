"""A packed row computed depth first in pieces, for trees whose activations do not fit at once.

In depth-first order a row's prefix stands before it and its continuations behind it. So the row can be cut anywhere: a
piece needs the keys and values of its ancestors alone. Going forward, pieces leave their keys and values and no graph;
going backward from the last piece to the first, each is computed again, behind its ancestors, and what it sends back to
their keys and values is added up until their own piece's turn comes (Algorithm 1 of arXiv 2602.00482 does so node by
node). Memory holds one piece's activations and the keys and values of the row; the gradient is that of one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rolltree.policy.attention import Kernel, along
from rolltree.policy.device import HALF, Compute
from rolltree.policy.llama_train import continued
from rolltree.policy.packed import Packed, Spans
from rolltree.tree.table import Ints

Store = list[tuple[Tensor, Tensor]]
"""Per layer, keys and values (N, kv heads, D) of the whole row, or what is sent back to them."""


@dataclass(frozen=True, slots=True, eq=False)
class RowPiece:
    """Rows start … stop of a packed row."""

    start: int
    stop: int
    above: Ints
    """Earlier rows that it sees, in order: the ancestors of its first one."""
    spans: Spans
    """Of the rows above and its own, laid end to end."""
    reads: Ints
    """Its rows whose output is needed, counted from its first."""


def cut(packed: Packed, size: int) -> list[RowPiece]:
    """Pieces of at most `size` rows."""
    last, edges = packed.spans.last(), range(0, len(packed), size)
    return [_piece(packed, last, start, min(start + size, len(packed))) for start in edges]


def _piece(packed: Packed, last: Ints, start: int, stop: int) -> RowPiece:
    above = np.flatnonzero(last[:start] > start)
    ends = np.minimum(np.concatenate([last[above], last[start:stop]]), stop) - start + len(above)
    # Neighbours with one end are a run without a fork; the piece's own rows begin a run of their own.
    opens = np.append(True, ends[1:] != ends[:-1])
    opens[len(above)] = True
    first = np.flatnonzero(opens)
    spans = Spans(np.diff(np.append(first, len(ends))), ends[first] - first)
    low, high = np.searchsorted(packed.reads, (start, stop))
    return RowPiece(start, stop, above, spans, packed.reads[low:high] - start)


def hidden_in_pieces(
    model: PreTrainedModel, packed: Packed, kernel: Kernel, device: torch.device, compute: Compute
) -> Tensor:
    """Last hidden states (U, hidden) at the row's reads.

    Gradients go straight to the parameters in the backward pass, so `torch.autograd.grad` does not see them.
    """
    work = _Work(model, packed, kernel, device, compute)
    if not torch.is_grad_enabled():
        return work.forward()[0]
    return _InPieces.apply(torch.zeros((), device=device, requires_grad=True), work)  # pyright: ignore[reportReturnType]


class _InPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, work: _Work) -> Tensor:
        hidden, store = work.forward()
        ctx.work, ctx.store = work, store
        return hidden

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        work: _Work = ctx.work
        work.backward(grads[0], ctx.store)
        return None, None


class _Work:
    """One row's two passes."""

    def __init__(
        self, model: PreTrainedModel, packed: Packed, kernel: Kernel, device: torch.device, compute: Compute
    ) -> None:
        self.model, self.device, self.compute = model, device, compute
        self.kernel: Kernel = kernel
        self.pieces = cut(packed, compute.piece)
        self.tokens, self.position = (torch.from_numpy(a).to(device) for a in (packed.tokens, packed.position))

    def forward(self) -> tuple[Tensor, Store]:
        """All states that are read, and the keys and values of all rows."""
        hidden: list[Tensor] = []
        store: Store = []
        with torch.no_grad(), self._context():
            for piece in self.pieces:
                past = self._above(piece, store) if store else self._nothing
                states, own = self._run(piece, past)
                hidden.append(states)
                store = store or [(self._room(k), self._room(v)) for k, v in own]
                _put(store, piece, own)
        return torch.cat(hidden), store

    def backward(self, grad: Tensor, store: Store) -> None:
        """Gradients of all parameters, given those of the states."""
        owed: Store = [(_zeros(k), _zeros(v)) for k, v in store]
        stop = len(grad)
        for piece in reversed(self.pieces):
            start = stop - len(piece.reads)
            leaves = [(k.detach().requires_grad_(), v.detach().requires_grad_()) for k, v in self._above(piece, store)]
            with torch.enable_grad(), self._context():
                states, own = self._run(piece, leaves)
            rows = slice(piece.start, piece.stop)
            told = [(states, grad[start:stop])] if len(piece.reads) else []
            for pair, theirs in zip(own, owed, strict=True):
                told += [(x, sent[rows].transpose(0, 1)) for x, sent in zip(pair, theirs, strict=True)]
            # The first piece's keys and values of a model whose projections are frozen carry no gradient.
            told = [(x, sent) for x, sent in told if x.requires_grad]
            if told:
                torch.autograd.backward([x for x, _ in told], [sent.to(x.dtype) for x, sent in told])
            above = torch.from_numpy(piece.above).to(self.device)
            for pair, theirs in zip(leaves, owed, strict=True):
                for leaf, sent in zip(pair, theirs, strict=True):
                    if leaf.grad is not None:
                        sent.index_add_(0, above, leaf.grad.transpose(0, 1).to(sent.dtype))
            stop = start

    def _run(self, piece: RowPiece, past: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Store]:
        first, rows = len(piece.above), slice(piece.start, piece.stop)
        attend = along(piece.spans, self.kernel, self.device, first=first, keep=not self.compute.checkpointing)
        reads = torch.from_numpy(piece.reads).to(self.device)
        return continued(
            self.model, self.tokens[rows], self.position[rows], attend, reads, past,
            checkpointing=self.compute.checkpointing,
        )  # fmt: skip

    def _above(self, piece: RowPiece, store: Store) -> list[tuple[Tensor, Tensor]]:
        index = torch.from_numpy(piece.above).to(self.device)
        return [(k.index_select(0, index).transpose(0, 1), v.index_select(0, index).transpose(0, 1)) for k, v in store]

    @property
    def _nothing(self) -> list[tuple[Tensor, Tensor]]:
        core: Any = self.model
        empty = torch.empty(0, 0, 0, device=self.device)
        return [(empty, empty)] * len(core.model.layers)

    def _room(self, like: Tensor) -> Tensor:
        return like.new_empty(len(self.tokens), like.shape[0], like.shape[2])

    def _context(self) -> AbstractContextManager[Any]:
        return self.compute.context(self.device)


def _put(store: Store, piece: RowPiece, own: Store) -> None:
    for pair, new in zip(store, own, strict=True):
        for whole, mine in zip(pair, new, strict=True):
            whole[piece.start : piece.stop] = mine.transpose(0, 1)


def _zeros(like: Tensor) -> Tensor:
    """Where many small gradients are added up."""
    return torch.zeros_like(like, dtype=torch.float32 if like.dtype in HALF else like.dtype)
