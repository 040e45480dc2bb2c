"""What is known of the requests being decoded: a row each, in arrays, so that a step costs no Python per row.

Columns are positions of the whole sequence, prefix included; numbers about a token stand in the token's own column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rolltree.engine.local.run import LocalRun, Parked
from rolltree.engine.local.sampling import SamplingRows
from rolltree.engine.local.stops import Meaning
from rolltree.engine.protocol import Sample
from rolltree.tree.node import Finish, FloatArray, Top

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Asking:
    """Some rows, how they draw, and at which places among them stand those that want more than a token."""

    rows: Ints
    distribution: SamplingRows
    hook: list[int]
    entropy: list[int]
    top: list[int]


_COLUMNS = ("ids", "logp", "sampling_logprob", "entropy", "version")
_ROWS = ("length", "begin", "limit", "shown", "prefilled", "mixed", "key", "temperature", "top_k", "top_p", "meaning",
         "base", "commons")  # fmt: skip


class DecodeBatch:
    """Rows 0 … len-1 are in use."""

    def __init__(self, vocab_size: int, max_top: int, levels: int) -> None:
        self.runs: list[LocalRun] = []
        self.ids = np.zeros((0, 0), np.int64)
        self.logp = np.zeros((0, 0), np.float32)
        self.sampling_logprob = np.zeros((0, 0), np.float32)
        self.entropy = np.zeros((0, 0), np.float32)
        self.version = np.zeros((0, 0), np.int32)
        self.length = np.zeros(0, np.int64)
        """Tokens so far; the last one has not been read by the model yet."""
        self.begin = np.zeros(0, np.int64)
        self.limit = np.zeros(0, np.int64)
        self.base = np.zeros(0, np.int64)
        """Up to where its text stands in common prefixes; what follows is in columns of its own."""
        self.commons = np.zeros((0, levels), np.int64)
        """Where these stand, level by level; -1 = none."""
        self.shown = np.zeros(0, np.int64)
        """Up to where increments have been reported."""
        self.prefilled = np.zeros(0, np.int64)
        self.mixed = np.zeros(0, np.bool_)
        """Whether its caches were made under several weight versions (then they are not shared)."""
        self.key = np.zeros(0, np.uint64)
        self.temperature = np.zeros(0, np.float64)
        self.top_k = np.zeros(0, np.int64)
        self.top_p = np.zeros(0, np.float64)
        self.meaning = np.zeros((0, vocab_size), np.uint8)
        self._max_top = max_top
        self._tops: dict[LocalRun, tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], FloatArray]] = {}
        self._asking: Asking | None = None

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def own(self) -> Ints:
        """Tokens of each request in columns of its own."""
        return self.length[: len(self)] - self.base[: len(self)]

    def resize(self, rows: int, columns: int) -> None:
        """Change the room, keeping the rows in use."""
        n = len(self)
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.zeros((rows, columns), old.dtype)
            width = min(columns, old.shape[1])
            new[:n, :width] = old[:n, :width]
            setattr(self, name, new)
        for name in _ROWS:
            old = getattr(self, name)
            new = np.zeros((rows, *old.shape[1:]), old.dtype)
            new[:n] = old[:n]
            setattr(self, name, new)

    def add(self, run: LocalRun, meaning: Meaning, prefilled: int, base: int, commons: list[int]) -> None:
        """Take the next row, which stands on common prefixes up to `base`."""
        row, s, n = len(self), run.request.sampling, len(run.ids)
        if run.top:
            new = run.limit - run.begin
            self._tops[run] = np.zeros((new, run.top), np.int32), np.zeros((new, run.top), np.float32)
        self.runs.append(run)
        self.ids[row, :n] = run.ids
        self.begin[row] = self.shown[row] = run.begin
        self.length[row] = n
        self.limit[row], self.prefilled[row], self.mixed[row] = run.limit, prefilled, False
        self.base[row], self.commons[row] = base, commons
        self.key[row], self.meaning[row] = run.key, meaning
        self.temperature[row], self.top_k[row], self.top_p[row] = s.temperature, s.top_k, s.top_p
        if run.parked is not None:
            self._restore(row, run.parked)
            run.parked = None
        self._asking = None

    def park(self) -> list[LocalRun]:
        """Empty the batch; every run takes with it what it has written and goes on from there."""
        parked = list[LocalRun]()
        for row, run in enumerate(self.runs):
            n = int(self.length[row])
            if n > run.begin:
                columns = {name: getattr(self, name)[row, run.begin : n].copy() for name in _COLUMNS if name != "ids"}
                tops = self._tops.get(run)
                run.parked = Parked(columns, tops, int(self.shown[row]), int(self.prefilled[row]))
                run.ids = self.ids[row, :n].copy()
            parked.append(run)
        return parked

    def _restore(self, row: int, had: Parked) -> None:
        begin, n = int(self.begin[row]), int(self.length[row])
        for name, values in had.columns.items():
            getattr(self, name)[row, begin:n] = values
        if had.tops is not None:
            self._tops[self.runs[row]] = had.tops
        self.shown[row] = had.shown
        self.prefilled[row] += had.prefilled

    def remove(self, rows: list[int]) -> tuple[list[int], list[int]]:
        """Drop rows and close the gaps; return which rows moved and where to."""
        left = len(self) - len(rows)
        gone = set(rows)
        for row in rows:
            self._tops.pop(self.runs[row], None)
        source = [r for r in range(left, len(self)) if r not in gone]
        target = [r for r in sorted(gone) if r < left]
        for name in (*_COLUMNS, *_ROWS):
            store = getattr(self, name)
            store[target] = store[source]
        for s, t in zip(source, target, strict=True):
            self.runs[t] = self.runs[s]
        del self.runs[left:]
        self._asking = None
        return source, target

    def asking(self, device: torch.device, rows: Ints | None = None) -> Asking:
        """What these rows want; of all rows, found once while the batch stays the same."""
        if rows is not None:
            return self._of(rows, device)
        if self._asking is None:
            self._asking = self._of(np.arange(len(self)), device)
        return self._asking

    def _of(self, rows: Ints, device: torch.device) -> Asking:
        runs = [self.runs[row] for row in rows.tolist()]
        vocab = self.meaning.shape[1]
        return Asking(
            rows,
            SamplingRows.of(self.temperature[rows], self.top_k[rows], self.top_p[rows], vocab, device),
            [i for i, run in enumerate(runs) if run.request.sampling.hook is not None],
            [i for i, run in enumerate(runs) if run.entropy],
            [i for i, run in enumerate(runs) if run.top],
        )

    def note_top(self, row: int, ids: np.ndarray[tuple[int], np.dtype[np.int64]], logp: FloatArray) -> None:
        """Alternatives of the token about to be written to a row."""
        run = self.runs[row]
        at = self.length[row] - self.begin[row]
        kept_ids, kept_logp = self._tops[run]
        kept_ids[at], kept_logp[at] = ids[: run.top], logp[: run.top]

    def sample(self, row: int, start: int, finish: Finish, hidden: FloatArray | None, stopped_by: str = "") -> Sample:
        """What a row has from column `start` on, copied."""
        run, stop = self.runs[row], int(self.length[row])
        part = slice(start, stop)
        top = None
        if run.top:
            first = start - int(self.begin[row])
            kept_ids, kept_logp = self._tops[run]
            top = Top(kept_ids[first : first + stop - start].copy(), kept_logp[first : first + stop - start].copy())
        return Sample(
            actions=self.ids[row, part].astype(np.int32),
            logp=self.logp[row, part].copy(),
            sampling_logprob=self.sampling_logprob[row, part].copy(),
            version=self.version[row, part].copy(),
            finish=finish,
            stopped_by=stopped_by,
            entropy=self.entropy[row, part].copy() if run.entropy else None,
            top=top,
            hidden=hidden,
            prefilled=int(self.prefilled[row]),
        )
