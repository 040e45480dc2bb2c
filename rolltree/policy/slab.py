"""Key and value caches of many sequences in one block of memory: a row a sequence, a column a position.

Rows in use stay contiguous from zero, so a step over the whole batch reads views instead of gathering. Rows are kept
about as wide as what is read of them, because processors stream memory without gaps several times as fast: half a
kilobyte unread behind every twelve read made attention 3.5 times slower on the machine where it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token."""

    heads: int
    key_dim: int
    value_dim: int

    @property
    def floats(self) -> int:
        """Numbers per token."""
        return self.heads * (self.key_dim + self.value_dim)


@dataclass(slots=True)
class Slab:
    """Keys and values per layer, each (rows, heads, capacity + 1, dim).

    The extra column takes what padding writes and is never read. Memory starts as zeros because attention multiplies
    masked columns by zero, which only works for finite numbers.
    """

    keys: list[Tensor]
    values: list[Tensor]
    spare: Tensor | None = None
    """Memory of a layer that was left behind by the latest change of shape, for the next one."""

    @classmethod
    def zeros(
        cls, shapes: tuple[LayerShape, ...], rows: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> Slab:
        """An empty slab."""
        slab = cls.unwritten(shapes, rows, capacity, dtype, device)
        for t in (*slab.keys, *slab.values):
            t.zero_()
        return slab

    @classmethod
    def unwritten(
        cls, shapes: tuple[LayerShape, ...], rows: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> Slab:
        """A slab of which nothing may be read that was not written before; the system gives its memory when it is."""
        return cls(
            [torch.empty(rows, s.heads, capacity + 1, s.key_dim, dtype=dtype, device=device) for s in shapes],
            [torch.empty(rows, s.heads, capacity + 1, s.value_dim, dtype=dtype, device=device) for s in shapes],
        )

    @property
    def rows(self) -> int:
        """Sequences it can hold."""
        return self.keys[0].shape[0]

    @property
    def capacity(self) -> int:
        """Positions per sequence."""
        return self.keys[0].shape[2] - 1

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values layer by layer."""
        return list(zip(self.keys, self.values, strict=True))

    def view(self, start: int, stop: int) -> Slab:
        """The rows from start to stop; writing to the view writes here."""
        return Slab([k[start:stop] for k in self.keys], [v[start:stop] for v in self.values])

    def resize(self, rows: int, capacity: int, used_rows: int, used_columns: int, *, room: int = 0) -> None:
        """Change the shape, keeping what is in use. One layer at a time, so the peak is one layer above the result.

        Each layer moves into the memory that the one before has left; where that is too small, new memory is taken for
        `room` columns, so that where layers are alike no later change of the capacity up to there needs any.
        """
        spare = self.spare
        for store in (self.keys, self.values):
            for i, old in enumerate(store):
                _, heads, _, dim = old.shape
                size = rows * heads * (capacity + 1) * dim
                if spare is None or len(spare) < size:
                    spare = old.new_zeros(rows * heads * (max(capacity, room) + 1) * dim)
                new = spare[:size].view(rows, heads, capacity + 1, dim)
                new[:used_rows, :, :used_columns] = old[:used_rows, :, :used_columns]
                new[:used_rows, :, used_columns:] = 0
                store[i], spare = new, _memory(old)
        self.spare = spare

    def wipe(self, row: int) -> None:
        """Forget a row that may hold numbers that are not finite."""
        for store in (self.keys, self.values):
            for t in store:
                t[row] = 0

    def copy_rows(self, source: Tensor, target: Tensor, length: int) -> None:
        """Copy the first `length` positions of rows to other rows (no row may be both source and target)."""
        for store in (self.keys, self.values):
            for t in store:
                t[target, :, :length] = t[source, :, :length]

    def move_columns(self, rows: Tensor, source: Tensor, target: Tensor) -> None:
        """Copy columns within rows, entry by entry (row, from, to); all are read before any is written."""
        for store in (self.keys, self.values):
            for t in store:
                t[rows, :, target] = t[rows, :, source]

    def write(self, layer: int, keys: Tensor, values: Tensor, rows: Tensor, positions: Tensor) -> None:
        """Write new keys and values (rows, new, heads, dim) at positions (rows, new)."""
        index = rows if positions.dim() == 1 else rows.unsqueeze(1)
        self.keys[layer][index, :, positions] = keys
        self.values[layer][index, :, positions] = values


def _memory(tensor: Tensor) -> Tensor:
    """All numbers of a tensor's memory, in one row."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
