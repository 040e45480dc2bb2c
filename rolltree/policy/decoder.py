"""What an engine needs of a model: extend cached rows by tokens, turn states into logits, take new weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rolltree.policy.shared import Shared
from rolltree.policy.slab import LayerShape, Slab


@dataclass(frozen=True, slots=True)
class TokenTree:
    """New tokens that do not all follow one another: nodes of a tree below each row's cached text."""

    positions: Tensor
    """(rows, new): the place of each in its row's own text, which is not the column it is kept in."""
    seen: Tensor
    """(rows, new, reach): which columns each one attends to, its own among them."""


class Decoder(Protocol):
    """A causal language model over a slab of cached rows."""

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """What each layer caches per token."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        ...

    @property
    def embeddings(self) -> Tensor:
        """The input-embedding table (vocab_size or more rows, width)."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width of the last hidden state."""
        ...

    @property
    def max_context(self) -> int:
        """Most positions it was made for."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights and caches."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def tables(self) -> tuple[Tensor, ...] | None:
        """What it looks up beside its weights. None = a step does more than compute on tensors of known shapes, so that
        it cannot be recorded and repeated."""
        ...

    @property
    def shares(self) -> bool:
        """Whether its rows may have shared text before their own."""
        ...

    def extend(
        self, ids: Tensor, start: Tensor, slab: Slab | None, reach: int, branches: TokenTree | None = None,
        shared: Shared | None = None,
    ) -> Tensor:  # fmt: skip
        """Read ids (rows, new) at positions start (rows,) onwards; return the last hidden states (rows, new, hidden).

        Each row sees its own first `start` cached positions and itself causally; `reach` is at least the largest
        start + new that matters and at most the slab's capacity. Rows shorter than `new` are padded on the right;
        what padding computes is meaningless. Without a slab every start is 0 and nothing is kept. With `branches` (and
        a slab) the new tokens are kept in the same columns, but stand and see as these say. With `shared` (and a slab)
        a row's first column stands behind the text that it shares, all of which it sees.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states (…, hidden)."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy new weights in place, all or nothing: a wrong name or shape is a ModelError and changes nothing."""
        ...
