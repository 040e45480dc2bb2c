"""One request in flight, seen from the event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolltree.engine.protocol import Request, Sample
from rolltree.engine.run import ToldRun
from rolltree.engine.samples import nothing
from rolltree.tree.node import Finish, Top


@dataclass(frozen=True, slots=True)
class Parked:
    """What a run that lost its place had: numbers about its tokens by name, and how much of it was known outside."""

    columns: dict[str, np.ndarray[tuple[int], np.dtype[Any]]]
    tops: tuple[np.ndarray[tuple[int, int], np.dtype[Any]], np.ndarray[tuple[int, int], np.dtype[Any]]] | None
    shown: int
    prefilled: int

    def sample(self, run: LocalRun, start: int, finish: Finish) -> Sample:
        """What was written from position `start` of the whole sequence on."""
        part, c = slice(start - run.begin, None), self.columns
        return Sample(
            run.ids[start:].astype(np.int32), c["logp"][part], c["sampling_logprob"][part], c["version"][part], finish,
            entropy=c["entropy"][part] if run.entropy else None,
            top=Top(*(t[: len(run.ids) - run.begin][part] for t in self.tops)) if self.tops is not None else None,
            prefilled=self.prefilled,
        )  # fmt: skip


class LocalRun(ToldRun):
    """A run in the embedded engine, whose thread sets `begun` and `ended`."""

    def __init__(self, request: Request, ids: Any, limit: int, key: int, top: int) -> None:
        super().__init__(request)
        self.ids = ids
        """What is to be read before the next token is drawn, as int64: the prefix, and what was written before a pause
        for want of memory."""
        self.begin = len(ids)
        """Length of the prefix."""
        self.parked: Parked | None = None
        """What it had written when memory ran out; it goes on from there."""
        self.limit = limit
        """Total length at which it ends."""
        self.rank = 0
        """Those of a lower rank get in before it."""
        self.key = key
        self.top = top
        self.entropy = any(w.startswith("entropy") for w in request.want)
        self.hidden = "hidden" in request.want
        self.streaming = False
        """Set once somebody iterates; the engine then reports increments."""
        self.ask_stop: Callable[[LocalRun, Finish], None] = lambda run, finish: None

    def unfinished(self, finish: Finish) -> tuple[Sample, Sample | None]:
        """What it has while it waits in the queue, and what of that no increment has shown."""
        if self.parked is None:
            return nothing(finish), None
        return self.parked.sample(self, self.begin, finish), self.parked.sample(self, self.parked.shown, finish)

    def _attend(self) -> None:
        self.streaming = True

    def _halt(self, finish: Finish) -> None:
        self.ask_stop(self, finish)
