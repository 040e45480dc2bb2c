"""One request in flight, seen from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from rolltree.engine.protocol import EngineError, Request, Sample
from rolltree.tree.node import Finish


class LocalRun:
    """A `Run`. Cancelling a task that awaits it aborts it; what exists can still be awaited afterwards."""

    def __init__(self, request: Request, ids: Any, limit: int, key: int, top: int) -> None:
        self.request = request
        self.ids = ids
        """Prefix as int64."""
        self.limit = limit
        """Total length at which it ends."""
        self.key = key
        self.top = top
        self.entropy = any(w.startswith("entropy") for w in request.want)
        self.hidden = "hidden" in request.want
        self.loop = asyncio.get_running_loop()
        self.streaming = False
        """Set once somebody iterates; the engine then reports increments."""
        self.ended = False
        self.ask_stop: Callable[[LocalRun, Finish], None] = lambda run, finish: None
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
        self.streaming = True
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
        if not self.ended:
            self.ask_stop(self, finish)

    def tell(self, part: Sample) -> None:
        """An increment has appeared (event loop only)."""
        self._parts.append(part)
        self._news.set()

    def end(self, outcome: Sample | EngineError, rest: Sample | None) -> None:
        """It has ended (event loop only); `rest` is what no increment has shown yet."""
        self.ended = True
        if rest is not None and len(rest.actions):
            self._parts.append(rest)
        if self._done.done():
            return
        if isinstance(outcome, Sample):
            self._done.set_result(outcome)
        else:
            self._done.set_exception(outcome)
            # Retrieved here so that a run nobody awaits any more (its siblings failed first) does not warn.
            self._done.exception()
        self._news.set()
