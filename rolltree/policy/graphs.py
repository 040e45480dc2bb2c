"""Decoding steps of a card as CUDA graphs: hundreds of small kernels are sent in one go instead of one by one.

A step that reads one token of every row is recorded for a number of rows and a place in memory, and repeated as long as
both stay. Rows beyond those in use write to the column that nobody reads. What rows share stands in tensors of the
recording's own, into which every change is copied. A step that fits no recording runs kernel by kernel; the second one
of its kind is recorded.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.policy.decoder import Decoder
from rolltree.policy.device import free_memory
from rolltree.policy.shared import Level, Shared
from rolltree.policy.slab import Slab
from rolltree.policy.training import TURNS

LOG = logging.getLogger("rolltree.engine")
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""From work on tensors that stay where they are to what does the same work again."""
KEPT = 8
"""Recordings kept; each holds the memory of one step."""
ROWS = 8
"""Recordings are for multiples of so many rows, so that one row less is no other recording."""
ROOM = 1 << 30
"""Bytes that must be free on the card: while a step is recorded, torch gives no cached memory back to get more."""
TRIES = 3
"""After so many recordings in a row that found no memory the engine goes on without."""
_ONE = threading.Lock()
"""A process records or sends one step at a time; some versions of torch bear no more."""


class CudaRecord:
    """Records on a stream of its own, into memory of its own."""

    def __init__(self, device: torch.device) -> None:
        self._stream = _stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._last: torch.cuda.CUDAGraph | None = None
        """Held, because a pool of memory that no graph uses may not be used again."""

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """A recording of the work, which is not done by it."""
        graph, device = torch.cuda.CUDAGraph(), self._stream.device
        with _ONE:
            if free_memory(device) < ROOM:
                torch.cuda.empty_cache()
            self._stream.wait_stream(torch.cuda.current_stream(device))
            collects = gc.isenabled()
            gc.disable()  # it might destroy another engine's graph, which is not allowed meanwhile
            try:
                with torch.cuda.stream(self._stream):
                    out = self._recorded(graph, work)
            finally:
                if collects:
                    gc.enable()
        self._last = graph

        def again() -> Tensor:
            with _ONE:
                graph.replay()
            return out

        return again

    def _recorded(self, graph: torch.cuda.CUDAGraph, work: Callable[[], Tensor]) -> Tensor:
        graph.capture_begin(self._pool, capture_error_mode="thread_local")
        try:
            out = work()
        except BaseException:  # its own error is told, not that the recording broke off
            with suppress(RuntimeError):
                graph.capture_end()
            self._ended()
            raise
        try:
            graph.capture_end()
        except BaseException:
            self._ended()
            raise
        return out

    def _ended(self) -> None:
        """Let the allocator know that nothing is recorded any more, which some versions of torch forget on an error."""
        c: Any = torch._C  # pyright: ignore[reportPrivateUsage]
        end = getattr(c, "_cuda_endAllocateToPool", None) or getattr(c, "_cuda_endAllocateCurrentStreamToPool", None)
        if end is not None:
            with suppress(RuntimeError):
                end(self._stream.device.index, self._pool)
        self._pool, self._last = torch.cuda.graph_pool_handle(), None


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """One for each card, because libraries keep memory for every stream they saw."""
    return torch.cuda.Stream(device)


@dataclass(slots=True)
class _Standing:
    """What rows share, in tensors that stay where they are."""

    base: Tensor
    most: int
    levels: list[tuple[Tensor, Tensor, Tensor, Tensor]]
    """Of each level: hidden, members, place, absent."""
    holds: Tensor | None = None
    """The base of what was copied last."""

    @classmethod
    def like(cls, shared: Shared, rows: int) -> _Standing:
        """Room for this and what is smaller."""
        new = shared.base.new_zeros
        levels = [
            (torch.zeros_like(one.hidden), torch.zeros_like(one.members), new(rows), new(rows, 1, 1, dtype=torch.bool))
            for one in shared.levels
        ]
        return cls(new(rows), shared.most, levels)

    def fits(self, shared: Shared) -> bool:
        """Whether there is room; both stand on the same memory."""
        readers = zip(self.levels, shared.levels, strict=True)
        return shared.most <= self.most and all(mine[1].shape[1] >= level.members.shape[1] for mine, level in readers)

    def take(self, shared: Shared) -> None:
        """Copy what has changed."""
        if shared.base is self.holds:
            return
        rows = len(shared.base)
        self.base[:rows] = shared.base
        for (hidden, members, place, absent), level in zip(self.levels, shared.levels, strict=True):
            most, room = level.members.shape[1], members.shape[1]
            hidden.copy_(level.hidden)
            members[:, :most] = level.members
            place[:rows] = level.place + level.place // most * (room - most)
            absent[:rows] = False if level.absent is None else level.absent
        self.holds = shared.base

    def shared(self, source: Shared) -> Shared:
        """As the decoder reads it, on the memory of the source."""
        levels = zip(self.levels, source.levels, strict=True)
        return Shared(self.base, self.most, tuple(Level(level.slab, level.first, *mine) for mine, level in levels))


@dataclass(slots=True, eq=False)
class _Recording:
    where: tuple[Hashable, ...]
    """The slab's memory, then what is shared."""
    sent: Tensor
    """(rows, 2): the last token of each row, and its column."""
    standing: _Standing | None
    again: Callable[[], Tensor]
    tables: tuple[Tensor, ...]
    """Held, because the decoder may replace what the recording reads."""

    def fits(self, where: tuple[Hashable, ...], rows: int, shared: Shared | None) -> bool:
        """Whether it reads what is asked for, with few rows for nothing."""
        room = len(self.sent)
        if where != self.where or not rows <= room <= max(2 * rows, 2 * ROWS):
            return False
        return shared is None or (self.standing is not None and self.standing.fits(shared))


class RecordedSteps:
    """Reads the last token of every row of a slab, where it has a recording of that."""

    def __init__(self, decoder: Decoder, make: Callable[[], Record]) -> None:
        self._decoder, self._make, self._record = decoder, make, make()
        self._kept: list[_Recording] = []
        self._before: Hashable = None
        self._refused: Hashable = None
        self._short = 0
        self.works = True
        """Whether steps can be recorded here, as far as is known."""
        self.recorded = self.repeated = 0
        """Steps recorded so far, and steps that were repeated from a recording."""

    @classmethod
    def of(cls, decoder: Decoder) -> RecordedSteps | None:
        """Where the decoder stands on a card and does nothing but compute."""
        if decoder.device.type != "cuda" or decoder.tables is None:
            return None
        return cls(decoder, lambda: CudaRecord(decoder.device))

    def read(self, slab: Slab, last: NDArray[np.int64], at: NDArray[np.int64], shared: Shared | None) -> Tensor | None:
        """Last hidden states (rows, 1, hidden) at the last tokens of the first rows, in columns `at`.

        None where no recording fits: the step has to go kernel by kernel.
        """
        rows = len(last)
        where = _where(slab, shared)
        found = next((r for r in self._kept if r.fits(where, rows, shared)), None)
        if found is None and where == self._before != self._refused and self.works:
            found = self._recording(where, slab, rows, shared)
        self._before = where
        if found is None:
            return None
        self._kept.remove(found)
        self._kept.insert(0, found)
        self.repeated += 1
        found.sent[:rows] = torch.from_numpy(np.stack([last, at], 1))
        if rows < len(found.sent):
            found.sent[rows:, 1] = slab.capacity
        if shared is not None and found.standing is not None:
            found.standing.take(shared)
        return found.again()[:rows].clone()

    def forget(self) -> None:
        """Give back the memory of all recordings."""
        if self._kept:
            self._kept, self._record = [], self._make()
        self._before = None

    def _recording(
        self, where: tuple[Hashable, ...], slab: Slab, rows: int, shared: Shared | None
    ) -> _Recording | None:
        room = min(-(-rows // ROWS) * ROWS, slab.rows)
        sent = torch.zeros(room, 2, dtype=torch.long, device=self._decoder.device)
        standing = None if shared is None else _Standing.like(shared, room)
        read = None if shared is None or standing is None else standing.shared(shared)
        view, columns = slab.view(0, room), slab.capacity

        def work() -> Tensor:
            return self._decoder.extend(sent[:, :1], sent[:, 1], view, columns, None, read)

        self._kept = [one for one in self._kept if one.where[0] == where[0]]
        if not self._kept:  # the rest was of memory that is gone
            self._record = self._make()
        again = self._recorded(work, where)
        if again is None:
            return None
        made = _Recording(where, sent, standing, again, self._decoder.tables or ())
        self._kept = [made, *self._kept[: KEPT - 1]]
        self.recorded += 1
        return made

    def _recorded(self, work: Callable[[], Tensor], where: Hashable) -> Callable[[], Tensor] | None:
        """The recording; None where something is trained just now, or it cannot be had. The step itself is well."""
        with TURNS.recording() as free:
            if not free:
                return None
            try:
                again = self._record(work)
            except torch.OutOfMemoryError as error:
                self._refused, self._short = where, self._short + 1
                self._give_up(error, self._short == TRIES)
                return None
            except RuntimeError as error:  # a driver or a library that cannot
                self._give_up(error)
                return None
        self._short = 0
        return again

    def _give_up(self, error: RuntimeError, over: bool = True) -> None:
        if over:
            self.works = False
            LOG.warning("Decoding steps cannot be recorded as CUDA graphs (%s); the engine goes on without.", error)


def _where(slab: Slab, shared: Shared | None) -> tuple[Hashable, ...]:
    """Which memory a step reads and writes, in which shape."""
    levels = () if shared is None else shared.levels
    return (
        _memory(slab), shared is None,
        *((_memory(one.slab), one.first, len(one.members), one.hidden.shape[-1]) for one in levels),
    )  # fmt: skip


def _memory(slab: Slab) -> Hashable:
    return slab.rows, slab.capacity, *(t.data_ptr() for t in slab.keys), *(t.data_ptr() for t in slab.values)
