"""Prefixes whose keys and values are kept: a radix tree of token blocks over a fixed pool of memory.

A block is named by its parent and its exact tokens, so nothing can collide. A prefix is found block by block and then
within the best child, so sharing is exact to the token. When the pool is full, the least recently used leaf goes; those
that a strategy plans to fork go last, as long as they are at most half of the pool. All entries belong to one weight
version; the engine clears the tree when weights change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.policy.slab import LayerShape, Slab

Ids: TypeAlias = NDArray[np.int64]

BLOCK = 16
_AT_ONCE = 128
"""Blocks copied at once: more of them pass through memory that the system has to give anew each time."""
_SCAN = 32
"""Children looked at for a partial match; bounds the cost where a prefix has forked very often."""


@dataclass(slots=True)
class PrefixCounts:
    """What became of kept prefixes, since the engine was made."""

    asked: int = 0
    """Tokens that were looked for."""
    found: int = 0
    """Of these, those that were kept."""
    evicted: int = 0
    """Blocks that went for want of room."""
    evicted_planned: int = 0
    """Of these, those that were to be forked."""
    handed: int = 0
    """Tokens that another engine had read and handed over."""
    spared: int = 0
    """Of these, those that a request has found: nobody had to read them here."""


@dataclass(slots=True, eq=False)
class _Block:
    slot: int
    parent: _Block | None
    tokens: Ids
    planned: bool = False
    tick: int = 0
    children: dict[bytes, _Block] = field(default_factory=dict[bytes, "_Block"])


@dataclass(frozen=True, slots=True)
class Stored:
    """A piece of a row to be copied into the pool, from column `start` on."""

    row: int
    start: int
    slot: int
    tokens: int


@dataclass(frozen=True, slots=True)
class KeptRun:
    """Kept blocks one below the other."""

    text: Ids
    """From the beginning to the end of the run."""
    start: int
    slots: tuple[int, ...]
    planned: bool


class PrefixCache:
    """Finds, restores and stores prefixes. `tokens` is the pool's size in tokens; below one block it keeps nothing."""

    def __init__(
        self, shapes: tuple[LayerShape, ...], tokens: int, dtype: torch.dtype, device: torch.device,
        counts: PrefixCounts | None = None,
    ) -> None:  # fmt: skip
        self.counts = counts or PrefixCounts()
        self._shapes, self._dtype, self._device = shapes, dtype, device
        self.size = max(tokens // BLOCK, 0)
        self._pool: Slab | None = None
        self._tick = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything (the weights have changed)."""
        self._root = _Block(-1, None, np.empty(0, np.int64))
        self._order: OrderedDict[int, _Block] = OrderedDict()
        """From the one used longest ago on."""
        self._planned: OrderedDict[int, _Block] = OrderedDict()
        """The same of those that are to be forked, and what stands above them."""
        self._used = 0
        self._free: list[int] = []
        self._handed: set[int] = set()
        """Slots that came from another engine and that no request has found yet."""

    def find(self, ids: Ids) -> tuple[int, list[int]]:
        """How many of the first tokens are kept, and the pool slots that hold them, in order."""
        node, at, slots = self._root, 0, list[int]()
        while (child := node.children.get(ids[at : at + BLOCK].tobytes())) is not None and at < len(ids):
            slots.append(child.slot)
            at += len(child.tokens)
            node = child
        best, extra = 0, None
        rest = ids[at : at + BLOCK]
        first = rest[:1].tobytes()
        for key, child in islice(reversed(node.children.items()), _SCAN) if len(rest) else ():
            if not key.startswith(first):
                continue
            n = min(len(rest), len(child.tokens))
            same = child.tokens[:n] == rest[:n]
            common = n if same.all() else int(same.argmin())
            if common > best:
                best, extra = common, child
        if extra is not None:
            slots.append(extra.slot)
            node = extra
        self._touch(node)
        self.counts.asked += len(ids)
        self.counts.found += at + best
        if self._handed:
            self._spare(at + best, slots)
        return at + best, slots

    def known(self, ids: Ids) -> int:
        """How many of the first tokens are kept in whole blocks; asking counts for nothing and uses nothing."""
        node, at = self._root, 0
        while at < len(ids) and (child := node.children.get(ids[at : at + BLOCK].tobytes())) is not None:
            at += len(child.tokens)
            node = child
        return at

    def restore(self, slots: list[list[int]], slab: Slab, first_row: int) -> None:
        """Copy the blocks of several prefixes into consecutive rows of a slab."""
        width = max(len(s) for s in slots)
        if self._pool is None or width == 0:
            return
        index = torch.zeros(len(slots), width, dtype=torch.long, device=self._device)
        for i, s in enumerate(slots):
            index[i, : len(s)] = torch.tensor(s, dtype=torch.long)
        columns = min(width * BLOCK, slab.capacity)
        for (pool_k, pool_v), (keys, values) in zip(self._pool.layers, slab.layers, strict=True):
            for pool, rows in ((pool_k, keys), (pool_v, values)):
                blocks = pool[:, :, :BLOCK][index].permute(0, 2, 1, 3, 4).flatten(2, 3)
                rows[first_row : first_row + len(slots), :, :columns] = blocks[:, :, :columns]

    def store(
        self, rows: list[tuple[int, int, Ids]], slab: Slab, planned: Collection[int] = (), *, handed: bool = False
    ) -> None:
        """Keep texts: each with its row, and where its own columns there begin (at a multiple of a block).

        What stands above these was kept before; where it is gone, so is what would stand below it. `planned` are rows
        whose texts are to be forked; `handed` is what another engine had read.
        """
        if self.size == 0:
            return
        self._tick += 1
        pieces = [piece for row, start, ids in rows for piece in self._insert(row, start, ids, row in planned)]
        if not pieces:
            return
        if self._pool is None:
            # A block is written whole before it is found, so memory that no block has needed yet costs nothing.
            self._pool = Slab.unwritten(self._shapes, self.size, BLOCK, self._dtype, self._device)
        for at in range(0, len(pieces), _AT_ONCE):
            self._copy(self._pool, pieces[at : at + _AT_ONCE], slab)
        if handed:
            self._handed.update(piece.slot for piece in pieces)
            self.counts.handed += sum(piece.tokens for piece in pieces)

    def runs(self, texts: Sequence[Ids], *, below: bool, most: int) -> list[KeptRun]:
        """Blocks on the way of texts, parents first; with `below` then all that goes on from there; `most` blocks."""
        out, seen, ends = list[KeptRun](), set[int](), list[tuple[_Block, Ids]]()
        for ids in texts:
            node, at, way = self._root, 0, list[_Block]()
            while at + BLOCK <= len(ids) and (child := node.children.get(ids[at : at + BLOCK].tobytes())) is not None:
                way.append(child)
                at += BLOCK
                node = child
            new = sum(block.slot in seen for block in way)
            out += _runs(ids[:at], new * BLOCK, way[new : new + most - len(seen)])
            seen.update(block.slot for block in way[new : new + most - len(seen)])
            rest = ids[at:]
            on = [child for child in node.children.values() if _agree(child.tokens, rest)]
            if not below:
                on = sorted(on, key=lambda child: min(len(child.tokens), len(rest)))[-1:] if len(rest) else []
            ends += [(child, ids[:at]) for child in on]
        ends.reverse()
        expanded = set[int]()
        while ends and len(seen) < most:
            block, above = ends.pop()
            chain = [] if block.slot in seen else [block]
            while chain and below and len(chain[-1].children) == 1 and len(seen) + len(chain) < most:
                chain += chain[-1].children.values()
            text = np.concatenate([above, *(part.tokens for part in chain or [block])])
            out += _runs(text, len(above), chain)
            seen.update(part.slot for part in chain)
            last = chain[-1] if chain else block
            if below and last.slot not in expanded:
                expanded.add(last.slot)
                # Those to be forked come off the end first.
                ends += [(on, text) for on in sorted(last.children.values(), key=lambda on: on.planned)]
        return out

    def _spare(self, found: int, slots: list[int]) -> None:
        """Book what a request finds for the first time of what was handed over."""
        for i, slot in enumerate(slots):
            if slot in self._handed:
                self._handed.remove(slot)
                self.counts.spared += min(found - i * BLOCK, BLOCK)

    def _copy(self, pool: Slab, pieces: list[Stored], slab: Slab) -> None:
        row, start, slot = torch.tensor([(p.row, p.start, p.slot) for p in pieces], device=self._device).unbind(1)
        within = torch.arange(BLOCK, device=self._device)
        column = (start[:, None] + within).clamp(max=slab.capacity)
        # Whole vectors are addressed by one number each, which copies several times as fast as four indices do.
        places = {
            heads: (_places(row, column, heads, slab.capacity), _places(slot, within.expand_as(column), heads, BLOCK))
            for heads in {s.heads for s in self._shapes}
        }
        for kept, (keys, values) in zip(pool.layers, slab.layers, strict=True):
            source, target = places[keys.shape[1]]
            for block, rows_of in zip(kept, (keys, values), strict=True):
                picked = rows_of.view(-1, rows_of.shape[-1]).index_select(0, source)
                block.view(-1, block.shape[-1]).index_copy_(0, target, picked)

    def _insert(self, row: int, own: int, ids: Ids, planned: bool) -> list[Stored]:
        node, new = self._root, list[Stored]()
        for at in range(0, len(ids), BLOCK):
            tokens = ids[at : at + BLOCK]
            key = tokens.tobytes()
            child = node.children.get(key)
            if child is None:
                if at < own:
                    break
                if not new:
                    self._touch(node)
                node.tick = self._tick
                slot = self._slot()
                if slot is None:
                    break
                child = _Block(slot, node, tokens.copy())
                node.children[key] = child
                self._order[slot] = child
                new.append(Stored(row, at - own, slot, len(tokens)))
            child.tick = self._tick
            node = child
        self._touch(node, planned)
        return new

    def _slot(self) -> int | None:
        """A free slot, if need be that of an old leaf; None if everything left belongs to this very call."""
        if self._free:
            return self._free.pop()
        if self._used < self.size:
            self._used += 1
            return self._used - 1
        many = len(self._planned) > self.size // 2 or not self._order
        for order in (self._planned, self._order) if many else (self._order,):
            slot, oldest = next(iter(order.items()), (0, self._root))
            if oldest.parent is not None and oldest.tick != self._tick and not oldest.children:
                del order[slot], oldest.parent.children[oldest.tokens.tobytes()]
                self.counts.evicted += 1
                self.counts.evicted_planned += oldest.planned
                self._handed.discard(slot)
                return slot
        return None

    def _touch(self, node: _Block, planned: bool = False) -> None:
        """Mark a path as used, leaf first, so that a block is always younger than what hangs below it."""
        while node.parent is not None:
            if planned and not node.planned:
                node.planned = True
                self._planned[node.slot] = self._order.pop(node.slot)
            (self._planned if node.planned else self._order).move_to_end(node.slot)
            node = node.parent


def _runs(text: Ids, start: int, blocks: Sequence[_Block]) -> list[KeptRun]:
    """Blocks below the first `start` tokens of a text, parted where those end that are to be forked."""
    out = list[KeptRun]()
    for planned, part in groupby(blocks, key=lambda block: block.planned):
        slots = tuple(block.slot for block in part)
        out.append(KeptRun(text[: start + len(slots) * BLOCK], start, slots, planned))
        start += len(slots) * BLOCK
    return out


def _agree(one: Ids, other: Ids) -> bool:
    """Whether one begins with the other."""
    n = min(len(one), len(other))
    return bool((one[:n] == other[:n]).all())


def _places(row: Tensor, column: Tensor, heads: int, capacity: int) -> Tensor:
    """Places of (row, every head, column) in a contiguous (rows, heads, capacity + 1, dim), counted in vectors."""
    head = row[:, None] * heads + torch.arange(heads, device=row.device)
    return (head[:, :, None] * (capacity + 1) + column[:, None, :]).flatten()
