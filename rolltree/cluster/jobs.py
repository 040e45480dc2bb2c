"""What a pool owes: samples and scores, whichever engine is working on them now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from rolltree.cluster.resume import continuation
from rolltree.cluster.run import PoolRun
from rolltree.cluster.wire import Order, Score, Start
from rolltree.engine.protocol import Request, Sample, Scored
from rolltree.engine.samples import cut, join, nothing
from rolltree.tree.node import Array, Finish

Post = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], None]
"""Has something called in another event loop."""


@dataclass(eq=False, slots=True)
class SampleJob:
    """A request and what of its sample has arrived, over all engines that wrote on it."""

    number: int
    request: Request
    run: PoolRun
    post: Post
    parts: list[Sample] = field(default_factory=list[Sample])
    count: int = 0
    """Tokens that have arrived."""
    boundary: int = 0
    """Tokens that earlier engines wrote."""
    paid: int = 0
    """Prefix tokens that earlier engines computed, as far as they said."""
    now: int = 0
    """Prefix tokens that the present engine computed."""
    deaths: float = 0.0
    """Engines that died while it was in them, or, at a tenth, on its way to them."""
    stop: Finish | None = None
    """Set once the caller has stopped it."""
    moving: bool = False
    """Whether its engine was told to hand it over."""

    @property
    def affinity(self) -> str:
        """Which prefixes it shares."""
        return self.request.affinity

    @property
    def made(self) -> Array:
        """All tokens that have arrived."""
        return np.concatenate([p.actions for p in self.parts]) if self.parts else np.zeros(0, np.int32)

    def order(self, offset: bool) -> Order:
        """What an engine is to do now. One that goes on with others' tokens is followed: its stops need watching."""
        self.boundary, self.moving = self.count, False
        self.paid, self.now = self.paid + self.now, 0
        rest = continuation(self.request, self.made, offset=offset)
        return Start(self.number, rest, self.run.following or self.count > 0)

    def take(self, part: Sample, keep: int | None = None) -> Sample:
        """Book what arrived (its first `keep` tokens) and return it."""
        self.now = max(self.now, part.prefilled)
        part = part if keep is None else cut(part, 0, keep)
        self.parts.append(part)
        self.count += len(part.actions)
        return part

    def tell(self, part: Sample) -> None:
        """Show an increment to the caller."""
        if len(part.actions):
            self.post(self.run.loop, lambda: self.run.tell(part))

    def conclude(self, finish: Finish, stopped_by: str = "", last: Sample | None = None) -> None:
        """Hand the whole to the caller; `last` is what was booked but not shown, and brings the hidden state."""
        whole = join(self.parts) if self.parts else nothing(finish)
        hidden = None if last is None else last.hidden
        prefilled = self.paid + self.now
        whole = replace(whole, finish=finish, stopped_by=stopped_by, hidden=hidden, prefilled=prefilled)
        self.post(self.run.loop, lambda: self.run.end(whole, last))

    def fail(self, error: Exception) -> None:
        """Hand the caller an exception."""
        self.post(self.run.loop, lambda: self.run.end(error))


@dataclass(eq=False, slots=True)
class RemoteScoreJob:
    """Tokens to score; begun anew where the engine dies."""

    number: int
    tokens: Array
    start: int
    want: frozenset[str]
    done: asyncio.Future[Scored]
    deaths: float = 0.0
    affinity: str = ""

    def order(self, offset: bool) -> Order:
        """What an engine is to do."""
        return Score(self.number, self.tokens, self.start, self.want)

    def answer(self, scored: Scored) -> None:
        """Hand the caller the answer."""
        if not self.done.done():
            self.done.set_result(scored)

    def fail(self, error: Exception) -> None:
        """Hand the caller an exception."""
        if not self.done.done():
            self.done.set_exception(error)


Job = SampleJob | RemoteScoreJob
