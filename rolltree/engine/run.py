"""What all runs have in common: they end once, are awaited, iterated, stopped and given up in the same way.

An engine's own run adds only where its tokens come from (`_after`) and how it is ended early (`_halt`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Generator
from typing import Any

from rolltree.engine.protocol import EngineError, Request, Sample
from rolltree.tree.node import Finish


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
