"""What all runs have in common: they end once, are awaited, iterated, stopped and given up in the same way.

An engine's own run adds only where its tokens come from (`_after`) and how it is ended early (`_halt`).
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Hashable
from typing import Any, Protocol

from rolltree.engine.protocol import EngineError, Request, Sample
from rolltree.tree.node import Finish

# A watchdog: an engine that has something to do and makes no progress is named, with what it is doing.
#
# It only speaks. Nobody but the user can tell a dead engine from one that reads a very long prefix on a slow machine.

LOG = logging.getLogger("rolltree.engine")
SILENCE = 120.0
"""Seconds without progress after which an engine is named."""


class Watched(Protocol):
    """An engine that can be watched."""

    def at_work(self) -> Hashable | None:
        """Something that changes with every progress; None while there is nothing to do, or it is paused."""
        ...

    def doing(self) -> str:
        """What it is at, for people: "the local engine (3 requests inside, in choose.py line 40)"."""
        ...


class Watchdog:
    """Looks at one engine as long as it has something to do; each stall is told once, and once when it is over."""

    def __init__(self, engine: Watched, *, silence: float = SILENCE, now: Callable[[], float] = time.monotonic) -> None:
        self._engine = weakref.ref(engine)
        self._silence, self._now = silence, now
        self._timer: asyncio.TimerHandle | None = None
        self._seen: Hashable | None = None
        self._since = now()
        self._told = False

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Something was asked of the engine: look from now on."""
        if self._timer is None or self._timer.cancelled() or self._timer.when() < loop.time() - self._silence:
            self._timer = loop.call_later(self._silence / 2, self._look, loop)

    def look(self) -> bool:
        """Look once; False where there is nothing to do."""
        engine = self._engine()
        seen = None if engine is None else engine.at_work()
        if engine is None or seen is None or seen != self._seen:
            if self._told:
                LOG.warning("The engine goes on after %.0f s.", self._now() - self._since)
            self._seen, self._since, self._told = seen, self._now(), False
        elif self._now() - self._since >= self._silence and not self._told:
            self._told = True
            LOG.warning("No progress for %.0f s: %s.", self._now() - self._since, engine.doing())
        return seen is not None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._silence / 2, self._look, loop) if self.look() else None


class BaseRun(ABC):
    """A `Run`, made in the event loop of its caller and told there what becomes of it.

    Cancelling a task that awaits it aborts it; what exists can still be awaited afterwards.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.loop = asyncio.get_running_loop()
        self.begun = False
        """Whether its engine has taken it up. Until then it has cost nothing and may as well go to another."""
        self.ended = False
        """Whether nothing more will come; an engine may know so before its last word has arrived here."""
        self._done: asyncio.Future[Sample] = self.loop.create_future()
        self._news = asyncio.Event()

    def __await__(self) -> Generator[Any, None, Sample]:
        return self._wait().__await__()

    async def _wait(self) -> Sample:
        try:
            return await asyncio.shield(self._done)
        except asyncio.CancelledError:
            self.stop()
            raise

    async def __aiter__(self) -> AsyncIterator[Sample]:
        self._attend()
        seen = 0
        while True:
            while (more := self._after(seen)) is not None:
                part, seen = more
                yield part
            if self._done.done():
                self._done.result()
                return
            self._news.clear()
            await self._news.wait()

    def stop(self, finish: Finish = "abort") -> None:
        """End it now; awaiting it gives what exists."""
        if not self.ended:
            self._halt(finish)

    def settle(self, outcome: Sample | BaseException) -> None:
        """It has ended; what is said after the first time is not heard."""
        if self._done.done():
            return
        self.ended = True
        if isinstance(outcome, Sample):
            self._done.set_result(outcome)
        else:
            self._done.set_exception(carried(outcome))
            # Retrieved here so that a run nobody awaits any more (its siblings failed first) does not warn.
            self._done.exception()
        self._news.set()

    def _attend(self) -> None:
        """Somebody begins to iterate."""
        return

    @abstractmethod
    def _after(self, seen: int) -> tuple[Sample, int] | None:
        """The increment behind what was seen, and what is seen with it; None while there is none."""

    @abstractmethod
    def _halt(self, finish: Finish) -> None:
        """Have it end with what exists."""


class ToldRun(BaseRun):
    """A run that is told its increments ready-made."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._parts: list[Sample] = []

    def tell(self, part: Sample) -> None:
        """An increment has appeared."""
        self._parts.append(part)
        self._news.set()

    def end(self, outcome: Sample | Exception, rest: Sample | None = None) -> None:
        """It has ended; `rest` is what no increment has shown."""
        if rest is not None and len(rest.actions) and not self._done.done():
            self._parts.append(rest)
        self.settle(outcome)

    def _after(self, seen: int) -> tuple[Sample, int] | None:
        return (self._parts[seen], seen + 1) if seen < len(self._parts) else None


def carried(error: BaseException) -> Exception:
    """What a future can hold and whoever awaits it cannot take for something else.

    A hook may raise anything: a StopIteration is refused by futures, and a CancelledError, KeyboardInterrupt or
    SystemExit would be taken for the end of the waiting task or of the program.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = EngineError(f"The engine was ended by {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
