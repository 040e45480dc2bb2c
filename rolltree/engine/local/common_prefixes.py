"""CommonPrefixes: runs of text that several requests inside begin with, kept once for all of them.

What a wave of prefixes has in common is found as a radix tree of blocks. A run of text that pays becomes a common
prefix; its level is the number of common prefixes above it, and every level has a slab with a row for each. A request's
own columns begin where its last common prefix ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.engine.local.batch import DecodeBatch, Ints
from rolltree.engine.local.prefix import BLOCK, Ids, PrefixCache
from rolltree.policy.decoder import Decoder
from rolltree.policy.shared import Level, Shared
from rolltree.policy.slab import Slab

# Which rows see which of the runs in a slab, as few batches of attention.

_EVEN = 3
"""Where places for readers are filled up to more than this many times their number, the slab is read in parts."""


def levels_of(slab: Slab, lengths: Ints, seen: Ints) -> list[Level]:
    """One batch for rows that each see one of the runs (-1 = none); runs with very many readers by themselves.

    The runs are the slab's first rows and have these lengths.
    """
    readers = np.bincount(seen[seen >= 0], minlength=len(lengths))
    if not readers.any():
        return []
    runs, total = int(np.flatnonzero(readers)[-1]) + 1, int(readers.sum())
    if runs * int(readers.max()) <= _EVEN * total:
        return [_level(slab, lengths[:runs], seen, 0)]
    many = np.flatnonzero(readers * runs > _EVEN * total)
    alone = [_level(slab, lengths[run : run + 1], np.where(seen == run, seen, -1), run) for run in many.tolist()]
    rest = np.where(np.isin(seen, many), -1, seen)
    return alone + ([_level(slab, lengths[: int(rest.max()) + 1], rest, 0)] if (rest >= 0).any() else [])


def _level(slab: Slab, lengths: Ints, seen: Ints, first: int) -> Level:
    rows = np.flatnonzero(seen >= 0)
    rows = rows[np.argsort(seen[rows], kind="stable")]
    run = seen[rows] - first
    count = np.bincount(run, minlength=len(lengths))
    most = int(count.max())
    among = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    members, place = np.zeros((len(lengths), most), np.int64), np.zeros(len(seen), np.int64)
    members[run, among], place[rows] = rows, run * most + among
    padding = np.arange(int(lengths.max())) >= lengths[:, None]
    like = slab.keys[0]

    def there(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(like.device)

    hidden = like.new_zeros(padding.shape).masked_fill_(there(padding), -torch.inf)[:, None, None]
    absent = there(seen < 0)[:, None, None] if len(rows) < len(seen) else None
    return Level(slab, first, hidden, there(members), there(place), absent)


LEVELS = 4
"""Most common prefixes on the way to a request; what is shared below stands in each request's own columns."""
PAYS, PAYS_EACH = 2000, 300
"""Tokens that need not be read a second time in each step, from which on a further level costs less than it saves: at
all, and more for each of its common prefixes, whose readers are a matrix product of their own."""
_STEP = 64


@dataclass(slots=True, eq=False)
class CommonPrefix:
    """A run of text below another one."""

    parent: CommonPrefix | None
    start: int
    tokens: Ids
    readers: int
    """Requests of the wave that made it."""
    by: int
    """Which prefix of the wave it was cut from; its request pays for reading it."""
    level: int = 0
    row: int = -1
    """Where it stands in the slab of its level; moves when others leave."""
    open: bool = True
    """Whether later requests may stand on it too."""

    @property
    def end(self) -> int:
        """Where it ends in the whole text."""
        return self.start + len(self.tokens)

    @property
    def saves(self) -> int:
        """Tokens of it that need not be read again in every step."""
        return (self.readers - 1) * len(self.tokens)

    @property
    def chain(self) -> list[CommonPrefix]:
        """From the first one to this."""
        return [*(self.parent.chain if self.parent is not None else ()), self]

    @property
    def text(self) -> Ids:
        """From the beginning to its end."""
        return np.concatenate([common.tokens for common in self.chain])


_Start: TypeAlias = tuple[CommonPrefix | None, bytes]
"""What stands above a common prefix, and its first block."""


@dataclass(slots=True)
class _LevelStore:
    """The common prefixes of one level."""

    slab: Slab
    commons: list[CommonPrefix] = field(default_factory=list[CommonPrefix])


@dataclass(slots=True)
class CommonPrefixes:
    """All common prefixes of one engine, in at most `room` tokens."""

    decoder: Decoder
    room: int
    stores: list[_LevelStore] = field(default_factory=list[_LevelStore])
    shared_tokens: int = 0
    """Tokens of prefixes that requests did not need to keep for themselves, since the engine was made."""

    def add_wave(
        self, wave: Sequence[tuple[Ids, int]], cache: PrefixCache, chunk: int
    ) -> tuple[list[CommonPrefix | None], Ints]:
        """The last common prefix of each text of a wave (with how many requests begin so), and tokens read for each."""
        paid, last = np.zeros(len(wave), np.int64), list[CommonPrefix | None]([None] * len(wave))
        if not wave or not self.decoder.shares or not self.room:
            return last, paid
        planned = list[CommonPrefix]()
        starts = self._starts()
        by_prefix = dict[CommonPrefix | None, list[int]]()
        for i, (ids, _) in enumerate(wave):
            last[i] = _standing(ids, starts)
            by_prefix.setdefault(last[i], []).append(i)
        for common, members in by_prefix.items():
            _cut(wave, members, common, planned, last)
        made = self._worth(planned)
        last = [_lasting(common, made) for common in last]
        for level in range(LEVELS):
            if new := [common for common in planned if common in made and common.level == level]:
                self._add(level, new)
                self._fill(new, cache, chunk, paid)
        self.shared_tokens += sum(
            count * common.end for (_, count), common in zip(wave, last, strict=True) if common is not None
        ) - sum(len(common.tokens) for common in made)
        return last, paid

    def free(self, batch: DecodeBatch) -> None:
        """Let go of common prefixes on which nobody stands any more, and close the gaps."""
        for level, store in enumerate(self.stores):
            rows = batch.commons[: len(batch), level]
            used = np.bincount(rows[rows >= 0], minlength=len(store.commons)) > 0
            for gone in reversed(np.flatnonzero(~used).tolist()):
                mover = store.commons.pop()
                if mover.row != gone:
                    place = torch.tensor([[mover.row], [gone]], device=self.decoder.device)
                    store.slab.copy_rows(place[0], place[1], len(mover.tokens))
                    rows[rows == mover.row] = gone
                    mover.row, store.commons[gone] = gone, mover
        while self.stores and not self.stores[-1].commons:
            self.stores.pop()

    def clear(self) -> None:
        """Nobody is inside any more."""
        self.stores = []

    def close(self) -> None:
        """Let nobody else stand on these: their numbers were made under other weights."""
        for store in self.stores:
            for common in store.commons:
                common.open = False

    def read_again(self, chunk: int) -> None:
        """Compute all of them under new weights."""
        for store in self.stores:
            self._read(store.commons, [0] * len(store.commons), chunk)
            for common in store.commons:
                common.open = True

    def rows_of(self, common: CommonPrefix | None) -> list[int]:
        """The common prefix's way down as numbers for `DecodeBatch.common prefixes`."""
        rows = [] if common is None else [s.row for s in common.chain]
        return rows + [-1] * (LEVELS - len(rows))

    def shared(self, rows: Ints, base: Ints) -> Shared | None:
        """What requests share that stand on these rows (requests, LEVELS), each with own columns from `base` on."""
        if not base.any():
            return None
        lengths = [np.array([len(common.tokens) for common in store.commons], np.int64) for store in self.stores]
        levels = [
            part
            for level, (store, long) in enumerate(zip(self.stores, lengths, strict=True))
            for part in levels_of(store.slab, long, rows[:, level])
        ]
        return Shared(torch.from_numpy(base.copy()).to(self.decoder.device), int(base.max()), tuple(levels))

    def _starts(self) -> dict[_Start, list[CommonPrefix]]:
        """CommonPrefixes inside that others may stand on."""
        starts = dict[_Start, list[CommonPrefix]]()
        for common in (common for store in self.stores for common in store.commons if common.open):
            starts.setdefault((common.parent, common.tokens[:BLOCK].tobytes()), []).append(common)
        return starts

    def _worth(self, planned: list[CommonPrefix]) -> set[CommonPrefix]:
        """Those that pay and have room."""
        made, left = set[CommonPrefix](), self.room - sum(f.slab.rows * f.slab.capacity for f in self.stores)
        for level in range(LEVELS):
            here = [
                s for s in planned if s.level == level and (s.parent is None or s.parent.row >= 0 or s.parent in made)
            ]
            standing = level < len(self.stores)
            had = self.stores[level].slab if standing else None
            rows, columns = self._size(level, here)
            left -= rows * columns - (had.rows * had.capacity if had is not None else 0)
            if not here or left < 0 or not (standing or sum(s.saves for s in here) >= PAYS + PAYS_EACH * len(here)):
                break
            made.update(here)
        return made

    def _size(self, level: int, new: list[CommonPrefix]) -> tuple[int, int]:
        """Rows and columns for a level with some more common prefixes."""
        store = self.stores[level] if level < len(self.stores) else None
        have, rows, columns = ([], 0, 0) if store is None else (store.commons, store.slab.rows, store.slab.capacity)
        need, longest = len(have) + len(new), max((len(s.tokens) for s in (*have, *new)), default=0)
        if need > rows:
            rows = max(need, rows * 3 // 2)
        if longest > columns or 2 * longest < columns:
            columns = -(-longest // _STEP) * _STEP
        return rows, columns

    def _add(self, level: int, new: list[CommonPrefix]) -> None:
        rows, columns = self._size(level, new)
        if level == len(self.stores):
            d = self.decoder
            self.stores.append(_LevelStore(Slab.zeros(d.shapes, 0, 0, d.dtype, d.device)))
        store = self.stores[level]
        if (rows, columns) != (store.slab.rows, store.slab.capacity):
            used = max((len(common.tokens) for common in store.commons), default=0)
            store.slab.resize(rows, columns, len(store.commons), used)
        for common in new:
            common.row = len(store.commons)
            store.commons.append(common)

    def _fill(self, new: list[CommonPrefix], cache: PrefixCache, chunk: int, paid: Ints) -> None:
        """Restore or read the common prefixes just added to a level, and keep them."""
        slab = self.stores[new[0].level].slab
        texts = [common.text for common in new]
        found = [cache.find(text) for text in texts]
        skip = [
            min(max(known - common.start, 0), len(common.tokens)) for common, (known, _) in zip(new, found, strict=True)
        ]
        cache.restore(
            [slots[common.start // BLOCK :] for common, (_, slots) in zip(new, found, strict=True)], slab, new[0].row
        )
        self._read(new, skip, chunk)
        cache.store([(common.row, common.start, text) for common, text in zip(new, texts, strict=True)], slab)
        for common, known in zip(new, skip, strict=True):
            paid[common.by] += len(common.tokens) - known

    def _read(self, commons: list[CommonPrefix], skip: list[int], chunk: int) -> None:
        """Read neighbouring common prefixes of one level, each from some token on."""
        at = 0
        while at < len(commons):
            size = 1
            while at + size < len(commons) and (size + 1) * max(_left(commons, skip, at, size + 1)) <= chunk:
                size += 1
            self._read_chunk(commons[at : at + size], skip[at : at + size])
            at += size

    def _read_chunk(self, commons: list[CommonPrefix], skip: list[int]) -> None:
        width = max(_left(commons, skip, 0, len(commons)))
        if not width:
            return
        ids = torch.zeros(len(commons), width, dtype=torch.long)
        for i, (common, known) in enumerate(zip(commons, skip, strict=True)):
            ids[i, : len(common.tokens) - known] = torch.from_numpy(common.tokens[known:])
        above = np.array([self.rows_of(common.parent) for common in commons], np.int64)
        shared = self.shared(above, np.array([common.start for common in commons], np.int64))
        view = self.stores[commons[0].level].slab.view(commons[0].row, commons[0].row + len(commons))
        device, reach = self.decoder.device, max(len(common.tokens) for common in commons)
        start = torch.tensor(skip, device=device)
        self.decoder.extend(ids.to(device), start, view, reach, None, shared)


def _standing(ids: Ids, starts: dict[_Start, list[CommonPrefix]]) -> CommonPrefix | None:
    """The last common prefix inside with which a text begins, a token at least being left."""
    found, at = None, 0
    while True:
        below = starts.get((found, ids[at : at + BLOCK].tobytes()), ())
        fitting = [
            common for common in below if common.end < len(ids) and bool((ids[at : common.end] == common.tokens).all())
        ]
        if not fitting:
            return found
        found = max(fitting, key=lambda common: common.end)
        at = found.end


def _cut(
    wave: Sequence[tuple[Ids, int]], members: list[int], common: CommonPrefix | None, planned: list[CommonPrefix],
    last: list[CommonPrefix | None],
) -> None:  # fmt: skip
    """Cut a common prefix below `common prefix` for these prefixes, which all begin with it; then for parts of them."""
    readers, level = sum(wave[i][1] for i in members), 0 if common is None else common.level + 1
    if readers < 2 or level == LEVELS:
        return
    first, start = wave[members[0]][0], 0 if common is None else common.end
    end = min(_common(first, wave[i][0]) for i in members) // BLOCK * BLOCK
    if end > start:
        common = CommonPrefix(common, start, first[start:end], readers, members[0], level)
        planned.append(common)
        for i in members:
            last[i] = common
    parts = dict[bytes, list[int]]()
    for i in members:
        parts.setdefault(wave[i][0][end : min(end + BLOCK, len(wave[i][0]) - 1)].tobytes(), []).append(i)
    for part in parts.values():
        if len(part) < len(members):
            _cut(wave, part, common, planned, last)


def _lasting(common: CommonPrefix | None, made: set[CommonPrefix]) -> CommonPrefix | None:
    """The nearest common prefix on the way up that is there."""
    while common is not None and common.row < 0 and common not in made:
        common = common.parent
    return common


def _left(commons: list[CommonPrefix], skip: list[int], at: int, size: int) -> list[int]:
    return [
        len(common.tokens) - known for common, known in zip(commons[at : at + size], skip[at : at + size], strict=True)
    ]


def _common(a: Ids, b: Ids) -> int:
    """Tokens with which both begin, a token of each being left."""
    n = min(len(a), len(b)) - 1
    same = a[:n] == b[:n]
    return n if same.all() else int(same.argmin())
