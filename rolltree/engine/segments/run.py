"""One request in flight at a foreign engine: what it has written so far, whichever calls wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rolltree.engine.protocol import Request, Sample
from rolltree.engine.run import BaseRun
from rolltree.engine.segments.wire import Alternatives
from rolltree.tree.node import Finish, FloatArray, Top


class SegmentRun(BaseRun):
    """A run whose calls bring its tokens; it has begun with the first of them."""

    def __init__(self, request: Request, ids: list[int], most: int, seed: int, top: int, reported: int) -> None:
        super().__init__(request)
        self.ids = ids
        """Prefix."""
        self.most = most
        """Tokens at which it ends."""
        self.seed = seed
        self.reported = reported
        """Alternatives asked for at each step; at least as many as are wanted, unless these come apart."""
        self.written: list[int] = []
        self.prefilled = 0
        self.halt: Callable[[], None] = lambda: None
        """Ends the call in flight, whoever writes it."""
        self.holding = False
        """Tokens have arrived whose log-probs are still to be read; a stop waits for them."""
        self.keeping = False
        """The engine may hold tokens that it hands over when its call is ended; a stop waits for them."""
        self.watched = False
        """Somebody wants its tokens as they come."""
        self.asked: Finish | None = None
        """How it was stopped."""
        self._top = top
        self.apart = top if top > reported else 0
        """Alternatives under the policy that the engine reports in place of its own."""
        self._entropy = any(w.startswith("entropy") for w in request.want)
        self._logp: list[float] = []
        self._sampling_logprobs: list[float] = []
        self._version: list[int] = []
        self._spread: list[float] = []
        self._best: list[Alternatives] = []

    def take(
        self, ids: Sequence[int], logp: Sequence[float], sampling_logprob: Sequence[float], version: int,
        best: Sequence[Alternatives] = (), spread: Sequence[float] = (),
    ) -> None:  # fmt: skip
        """Tokens have come; `spread` is the entropy at each, where it is wanted."""
        if self.ended:
            return
        self.written += ids
        self._logp += logp
        self._sampling_logprobs += sampling_logprob
        self._version += [version] * len(ids)
        if self._top:
            self._best += best
        if self._entropy:
            self._spread += spread
        self._news.set()

    def end(self, finish: Finish, stopped_by: str = "") -> None:
        """It is over."""
        if not self.ended:
            self.settle(self._sample(finish, 0, stopped_by))

    def _halt(self, finish: Finish) -> None:
        if self.asked is not None:
            return
        self.asked = finish
        if not (self.holding or self.keeping):
            self.end(finish)
        self.halt()

    def _attend(self) -> None:
        self.watched = True

    def _after(self, seen: int) -> tuple[Sample, int] | None:
        now = len(self._logp)
        return (self._sample("abort", seen), now) if now > seen else None

    def _sample(self, finish: Finish, start: int, stopped_by: str = "") -> Sample:
        return Sample(
            np.array(self.written[start:], np.int32),
            np.array(self._logp[start:], np.float32),
            np.array(self._sampling_logprobs[start:], np.float32),
            np.array(self._version[start:], np.int32),
            finish,
            stopped_by,
            entropy=np.array(self._spread[start:], np.float32) if self._entropy else None,
            top=_top(self._best[start:], self._top) if self._top else None,
            prefilled=self.prefilled if start == 0 else 0,
        )


def _top(best: Sequence[Alternatives], k: int) -> Top:
    ids = np.array([list(i[:k]) for i, _ in best], np.int32).reshape(-1, k)
    logp: FloatArray = np.array([list(p[:k]) for _, p in best], np.float32).reshape(-1, k)
    return Top(ids, logp)
