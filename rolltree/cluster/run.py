"""One request in flight in a pool, seen from the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from rolltree.engine.protocol import Request, Sample
from rolltree.tree.node import Finish


class PoolRun:
    """A `Run`. Cancelling a task that awaits it aborts it; what exists can still be awaited afterwards."""

    def __init__(self, request: Request, *, follow: bool) -> None:
        self.request = request
        self.loop = asyncio.get_running_loop()
        self.following = follow
        """Whether increments are reported: from the start, or once somebody iterates."""
        self.ask_stop: Callable[[Finish], None] = lambda finish: None
        self.ask_follow: Callable[[], None] = lambda: None
        self._done: asyncio.Future[Sample] = self.loop.create_future()
        self._parts: list[Sample] = []
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
        if not self.following:
            self.following = True
            self.ask_follow()
        seen = 0
        while True:
            while seen < len(self._parts):
                seen += 1
                yield self._parts[seen - 1]
            if self._done.done():
                self._done.result()
                return
            self._news.clear()
            await self._news.wait()

    def stop(self, finish: Finish = "abort") -> None:
        """End it now; awaiting it gives what exists."""
        if not self._done.done():
            self.ask_stop(finish)

    def tell(self, part: Sample) -> None:
        """An increment has arrived (caller's loop only)."""
        self._parts.append(part)
        self._news.set()

    def end(self, outcome: Sample | Exception, rest: Sample | None = None) -> None:
        """It has ended (caller's loop only); `rest` is what no increment has shown."""
        if self._done.done():
            return
        if rest is not None and len(rest.actions):
            self._parts.append(rest)
        if isinstance(outcome, Sample):
            self._done.set_result(outcome)
        else:
            self._done.set_exception(outcome)
            # Retrieved here so that a run nobody awaits any more does not warn.
            self._done.exception()
        self._news.set()
