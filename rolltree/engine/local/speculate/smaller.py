"""A smaller policy as drafter: it reads the same texts with a cache of its own and grows the tree level by level."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rolltree.engine.local.speculate.drafter import DraftAsk, Drafter
from rolltree.engine.local.speculate.near import guesses
from rolltree.engine.local.speculate.tree import Guess
from rolltree.policy.decoder import Decoder, TokenTree
from rolltree.policy.slab import Slab

_STEP = 64
_MARGIN = 160
"""Columns for guesses beyond the text."""


class SmallerPolicy(Drafter):
    """Guesses what another policy over the same tokens would draw."""

    computes = True

    def __init__(self, decoder: Decoder, vocab: int) -> None:
        self._decoder = decoder
        self._vocab = min(vocab, decoder.vocab_size)
        self._slab = Slab.zeros(decoder.shapes, 0, 0, decoder.dtype, decoder.device)
        self._texts: dict[int, list[int]] = {}
        self._rows: dict[int, int] = {}
        self._free: list[int] = []
        self._read: dict[int, int] = {}
        """How much of each text its row holds."""
        self._columns: dict[int, dict[tuple[int, ...], int]] = {}
        """Where the paths guessed last stand."""

    def begin(self, key: int, prefix: Sequence[int]) -> None:
        """See `Drafter`."""
        self._texts[key] = list(prefix)

    def written(self, key: int, text: Sequence[int], new: int) -> None:
        """See `Drafter`."""
        self._texts[key] += text[len(text) - new :]

    def ended(self, key: int) -> None:
        """See `Drafter`."""
        for table in (self._texts, self._read, self._columns):
            table.pop(key, None)
        if (row := self._rows.pop(key, None)) is not None:
            self._free.append(row)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[Guess]]:
        """See `Drafter`."""
        out: list[list[Guess]] = [[] for _ in asks]
        room = self._decoder.max_context
        fits = [i for i, ask in enumerate(asks) if len(self._texts[ask.key]) + len(ask.path) <= room]
        if fits:
            mine = [asks[i] for i in fits]
            hidden = self._below(mine) if mine[0].path else self._ends(mine)
            found = guesses(self._decoder.logits(hidden)[:, : self._vocab], mine)
            for i, answer in zip(fits, found, strict=True):
                out[i] = answer
        return out

    def _ends(self, asks: Sequence[DraftAsk]) -> Tensor:
        """States at the ends of texts; reads what is new of them."""
        for ask in asks:
            self._seat(ask.key)
        keys = list(dict.fromkeys(ask.key for ask in asks))
        self._fit(max(len(self._texts[key]) for key in keys))
        # The last token is read again, since its state is wanted.
        begins = {key: min(self._read[key], len(self._texts[key]) - 1) for key in keys}
        parts = {key: self._texts[key][begins[key] :] for key in keys}
        hidden = self._extend(parts, begins, None)
        for key in keys:
            self._read[key] = len(self._texts[key])
            self._columns[key] = {}
        rows = [self._rows[ask.key] for ask in asks]
        return hidden[rows, [len(parts[ask.key]) - 1 for ask in asks]]

    def _below(self, asks: Sequence[DraftAsk]) -> Tensor:
        """States after guessed paths, all of one length; the paths above them were asked before."""
        rows, parts = self._slab.rows, dict[int, list[int]]()
        places = list[tuple[int, int]]()
        for ask in asks:
            level = parts.setdefault(ask.key, [])
            places.append((self._rows[ask.key], len(level)))
            level.append(ask.path[-1])
        begins = {key: len(self._texts[key]) + len(self._columns[key]) for key in parts}
        self._fit(max(begins[key] + len(part) for key, part in parts.items()))
        widest, reach = max(map(len, parts.values())), self._slab.capacity
        positions = torch.zeros(rows, widest, dtype=torch.long)
        seen = torch.zeros(rows, widest, reach, dtype=torch.bool)
        seen[:, :, 0] = True
        for ask, (row, i) in zip(asks, places, strict=True):
            length, known = len(self._texts[ask.key]), self._columns[ask.key]
            known[ask.path] = begins[ask.key] + i
            positions[row, i] = length + len(ask.path) - 1
            seen[row, i, :length] = True
            seen[row, i, [known[ask.path[: d + 1]] for d in range(len(ask.path))]] = True
        device = self._decoder.device
        hidden = self._extend(parts, begins, TokenTree(positions.to(device), seen.to(device)))
        return hidden[[row for row, _ in places], [i for _, i in places]]

    def _extend(self, parts: dict[int, list[int]], begins: dict[int, int], branches: TokenTree | None) -> Tensor:
        rows, widest, device = self._slab.rows, max(map(len, parts.values())), self._decoder.device
        ids, start = torch.zeros(rows, widest, dtype=torch.long), torch.zeros(rows, dtype=torch.long)
        for key, row in self._rows.items():
            # What padding writes stands behind what is held.
            start[row] = begins.get(key, self._read[key])
            part = parts.get(key, [])
            ids[row, : len(part)] = torch.tensor(part, dtype=torch.long)
        return self._decoder.extend(ids.to(device), start.to(device), self._slab, self._slab.capacity, branches)

    def _seat(self, key: int) -> None:
        if key not in self._rows:
            if not self._free:
                had = self._slab.rows
                rows = max(4, 2 * had)
                self._slab.resize(rows, self._slab.capacity, had, self._slab.capacity)
                self._free = list(range(rows - 1, had - 1, -1))
            self._rows[key], self._read[key] = self._free.pop(), 0

    def _fit(self, length: int) -> None:
        columns = -(-(length + _MARGIN) // _STEP) * _STEP
        if self._slab.capacity < length + 1:
            self._slab.resize(self._slab.rows, columns, self._slab.rows, self._slab.capacity)
