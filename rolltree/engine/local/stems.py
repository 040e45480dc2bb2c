"""Stems: runs of text that several requests inside begin with, kept once for all of them.

What a wave of prefixes has in common is found as a radix tree of blocks. A run that pays becomes a stem; a stem's level
is the number of stems above it, and every level has a slab with a row for each. A request's own columns begin where its
last stem ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from rolltree.engine.local.batch import DecodeBatch, Ints
from rolltree.engine.local.levels import levels_of
from rolltree.engine.local.prefix import BLOCK, Ids, PrefixCache
from rolltree.policy.decoder import Decoder
from rolltree.policy.shared import Shared
from rolltree.policy.slab import Slab

LEVELS = 4
"""Most stems on the way to a request; what is shared below stands in each request's own columns."""
PAYS = 1500
"""Tokens that need not be read a second time in each step, from which on a further level costs less than it saves."""
_STEP = 64


@dataclass(slots=True, eq=False)
class Stem:
    """A run of text below another one."""

    parent: Stem | None
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
    def chain(self) -> list[Stem]:
        """From the first one to this."""
        return [*(self.parent.chain if self.parent is not None else ()), self]

    @property
    def text(self) -> Ids:
        """From the beginning to its end."""
        return np.concatenate([stem.tokens for stem in self.chain])


_Door: TypeAlias = tuple[Stem | None, bytes]
"""What stands above a stem, and its first block."""


@dataclass(slots=True)
class _Floor:
    """The stems of one level."""

    slab: Slab
    stems: list[Stem] = field(default_factory=list[Stem])


@dataclass(slots=True)
class Stems:
    """All stems of one engine, in at most `room` tokens."""

    decoder: Decoder
    room: int
    floors: list[_Floor] = field(default_factory=list[_Floor])
    shared_tokens: int = 0
    """Tokens of prefixes that requests did not need to keep for themselves, since the engine was made."""

    def plant(self, wave: Sequence[tuple[Ids, int]], cache: PrefixCache, chunk: int) -> tuple[list[Stem | None], Ints]:
        """The last stem of each prefix of a wave (with how many requests begin with it), and tokens read for each."""
        paid, last = np.zeros(len(wave), np.int64), list[Stem | None]([None] * len(wave))
        if not self.decoder.shares or not self.room:
            return last, paid
        planned = list[Stem]()
        doors = self._doors()
        by_stem = dict[Stem | None, list[int]]()
        for i, (ids, _) in enumerate(wave):
            last[i] = _standing(ids, doors)
            by_stem.setdefault(last[i], []).append(i)
        for stem, members in by_stem.items():
            _cut(wave, members, stem, planned, last)
        made = self._worth(planned)
        last = [_lasting(stem, made) for stem in last]
        for level in range(LEVELS):
            if new := [stem for stem in planned if stem in made and stem.level == level]:
                self._add(level, new)
                self._fill(new, cache, chunk, paid)
        self.shared_tokens += sum(
            count * stem.end for (_, count), stem in zip(wave, last, strict=True) if stem is not None
        ) - sum(len(stem.tokens) for stem in made)
        return last, paid

    def free(self, batch: DecodeBatch) -> None:
        """Let go of stems on which nobody stands any more, and close the gaps."""
        for level, floor in enumerate(self.floors):
            rows = batch.stems[: len(batch), level]
            used = np.bincount(rows[rows >= 0], minlength=len(floor.stems)) > 0
            for gone in reversed(np.flatnonzero(~used).tolist()):
                mover = floor.stems.pop()
                if mover.row != gone:
                    place = torch.tensor([[mover.row], [gone]], device=self.decoder.device)
                    floor.slab.copy_rows(place[0], place[1], len(mover.tokens))
                    rows[rows == mover.row] = gone
                    mover.row, floor.stems[gone] = gone, mover
        while self.floors and not self.floors[-1].stems:
            self.floors.pop()

    def clear(self) -> None:
        """Nobody is inside any more."""
        self.floors = []

    def close(self) -> None:
        """Let nobody else stand on these: their numbers were made under other weights."""
        for floor in self.floors:
            for stem in floor.stems:
                stem.open = False

    def read_again(self, chunk: int) -> None:
        """Compute all of them under new weights."""
        for floor in self.floors:
            self._read(floor.stems, [0] * len(floor.stems), chunk)
            for stem in floor.stems:
                stem.open = True

    def rows_of(self, stem: Stem | None) -> list[int]:
        """The stem's way down as numbers for `DecodeBatch.stems`."""
        rows = [] if stem is None else [s.row for s in stem.chain]
        return rows + [-1] * (LEVELS - len(rows))

    def shared(self, rows: Ints, base: Ints) -> Shared | None:
        """What requests share that stand on these stems (requests, LEVELS), each with own columns from `base` on."""
        if not base.any():
            return None
        lengths = [np.array([len(stem.tokens) for stem in floor.stems], np.int64) for floor in self.floors]
        levels = [
            part
            for level, (floor, long) in enumerate(zip(self.floors, lengths, strict=True))
            for part in levels_of(floor.slab, long, rows[:, level])
        ]
        return Shared(torch.from_numpy(base.copy()).to(self.decoder.device), int(base.max()), tuple(levels))

    def _doors(self) -> dict[_Door, list[Stem]]:
        """Stems inside that others may stand on."""
        doors = dict[_Door, list[Stem]]()
        for stem in (stem for floor in self.floors for stem in floor.stems if stem.open):
            doors.setdefault((stem.parent, stem.tokens[:BLOCK].tobytes()), []).append(stem)
        return doors

    def _worth(self, planned: list[Stem]) -> set[Stem]:
        """Those that pay and have room."""
        made, left = set[Stem](), self.room - sum(f.slab.rows * f.slab.capacity for f in self.floors)
        for level in range(LEVELS):
            here = [
                s for s in planned if s.level == level and (s.parent is None or s.parent.row >= 0 or s.parent in made)
            ]
            standing = level < len(self.floors)
            had = self.floors[level].slab if standing else None
            rows, columns = self._size(level, here)
            left -= rows * columns - (had.rows * had.capacity if had is not None else 0)
            if not here or left < 0 or not (standing or sum(s.saves for s in here) >= PAYS):
                break
            made.update(here)
        return made

    def _size(self, level: int, new: list[Stem]) -> tuple[int, int]:
        """Rows and columns for a level with some more stems."""
        floor = self.floors[level] if level < len(self.floors) else None
        have, rows, columns = ([], 0, 0) if floor is None else (floor.stems, floor.slab.rows, floor.slab.capacity)
        need, longest = len(have) + len(new), max((len(s.tokens) for s in (*have, *new)), default=0)
        if need > rows:
            rows = max(need, rows * 3 // 2)
        if longest > columns or 2 * longest < columns:
            columns = -(-longest // _STEP) * _STEP
        return rows, columns

    def _add(self, level: int, new: list[Stem]) -> None:
        rows, columns = self._size(level, new)
        if level == len(self.floors):
            d = self.decoder
            self.floors.append(_Floor(Slab.zeros(d.shapes, 0, 0, d.dtype, d.device)))
        floor = self.floors[level]
        if (rows, columns) != (floor.slab.rows, floor.slab.capacity):
            used = max((len(stem.tokens) for stem in floor.stems), default=0)
            floor.slab.resize(rows, columns, len(floor.stems), used)
        for stem in new:
            stem.row = len(floor.stems)
            floor.stems.append(stem)

    def _fill(self, new: list[Stem], cache: PrefixCache, chunk: int, paid: Ints) -> None:
        """Restore or read the stems just added to a level, and keep them."""
        slab = self.floors[new[0].level].slab
        texts = [stem.text for stem in new]
        found = [cache.find(text) for text in texts]
        skip = [min(max(known - stem.start, 0), len(stem.tokens)) for stem, (known, _) in zip(new, found, strict=True)]
        cache.restore(
            [slots[stem.start // BLOCK :] for stem, (_, slots) in zip(new, found, strict=True)], slab, new[0].row
        )
        self._read(new, skip, chunk)
        cache.store([(stem.row, stem.start, text) for stem, text in zip(new, texts, strict=True)], slab)
        for stem, known in zip(new, skip, strict=True):
            paid[stem.by] += len(stem.tokens) - known

    def _read(self, stems: list[Stem], skip: list[int], chunk: int) -> None:
        """Read neighbouring stems of one level, each from some token on."""
        at = 0
        while at < len(stems):
            size = 1
            while at + size < len(stems) and (size + 1) * max(_left(stems, skip, at, size + 1)) <= chunk:
                size += 1
            self._read_chunk(stems[at : at + size], skip[at : at + size])
            at += size

    def _read_chunk(self, stems: list[Stem], skip: list[int]) -> None:
        width = max(_left(stems, skip, 0, len(stems)))
        if not width:
            return
        ids = torch.zeros(len(stems), width, dtype=torch.long)
        for i, (stem, known) in enumerate(zip(stems, skip, strict=True)):
            ids[i, : len(stem.tokens) - known] = torch.from_numpy(stem.tokens[known:])
        above = np.array([self.rows_of(stem.parent) for stem in stems], np.int64)
        shared = self.shared(above, np.array([stem.start for stem in stems], np.int64))
        view = self.floors[stems[0].level].slab.view(stems[0].row, stems[0].row + len(stems))
        device, reach = self.decoder.device, max(len(stem.tokens) for stem in stems)
        start = torch.tensor(skip, device=device)
        self.decoder.extend(ids.to(device), start, view, reach, None, shared)


def _standing(ids: Ids, doors: dict[_Door, list[Stem]]) -> Stem | None:
    """The last stem inside with which a text begins, a token at least being left."""
    found, at = None, 0
    while True:
        below = doors.get((found, ids[at : at + BLOCK].tobytes()), ())
        fitting = [stem for stem in below if stem.end < len(ids) and bool((ids[at : stem.end] == stem.tokens).all())]
        if not fitting:
            return found
        found = max(fitting, key=lambda stem: stem.end)
        at = found.end


def _cut(
    wave: Sequence[tuple[Ids, int]], members: list[int], stem: Stem | None, planned: list[Stem],
    last: list[Stem | None],
) -> None:  # fmt: skip
    """Cut a stem below `stem` for these prefixes, which all begin with it; then for parts of them."""
    readers, level = sum(wave[i][1] for i in members), 0 if stem is None else stem.level + 1
    if readers < 2 or level == LEVELS:
        return
    first, start = wave[members[0]][0], 0 if stem is None else stem.end
    end = min(_common(first, wave[i][0]) for i in members) // BLOCK * BLOCK
    if end > start:
        stem = Stem(stem, start, first[start:end], readers, members[0], level)
        planned.append(stem)
        for i in members:
            last[i] = stem
    parts = dict[bytes, list[int]]()
    for i in members:
        parts.setdefault(wave[i][0][end : min(end + BLOCK, len(wave[i][0]) - 1)].tobytes(), []).append(i)
    for part in parts.values():
        if len(part) < len(members):
            _cut(wave, part, stem, planned, last)


def _lasting(stem: Stem | None, made: set[Stem]) -> Stem | None:
    """The nearest stem on the way up that is there."""
    while stem is not None and stem.row < 0 and stem not in made:
        stem = stem.parent
    return stem


def _left(stems: list[Stem], skip: list[int], at: int, size: int) -> list[int]:
    return [len(stem.tokens) - known for stem, known in zip(stems[at : at + size], skip[at : at + size], strict=True)]


def _common(a: Ids, b: Ids) -> int:
    """Tokens with which both begin, a token of each being left."""
    n = min(len(a), len(b)) - 1
    same = a[:n] == b[:n]
    return n if same.all() else int(same.argmin())
