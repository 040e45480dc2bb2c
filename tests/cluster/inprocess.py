"""A transport whose processes are objects in the pool's own loop, which die when the test says so.

What runs is the real host with a real engine; only the death is exact: every call on its way and every later one
raises, and nothing the host had not yet said is ever heard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from rolltree.cluster.errors import LostError


class Process:
    """One such process."""

    def __init__(self, live: Callable[[], Any]) -> None:
        self.host: Any = None
        self._live = live
        self._calls: set[asyncio.Task[Any]] = set()
        self.dead = False
        self.killed = asyncio.Event()

    async def call(self, method: str, *args: Any) -> Any:
        if self.dead:
            raise LostError("the process is dead")
        if self.host is None:
            self.host = self._live()
        task = asyncio.ensure_future(getattr(self.host, method)(*args))
        self._calls.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.dead:
                raise LostError("the process was killed") from None
            raise
        finally:
            self._calls.discard(task)

    async def parted(self, method: str, *args: Any) -> Any:
        return await self.call(method, *args)

    def pack(self, order: Any) -> Any:
        return order

    def kill(self) -> None:
        self.dead = True
        self.killed.set()
        for task in self._calls:
            task.cancel()
        for task in getattr(self.host, "_tasks", ()):
            task.cancel()
        if self.host is not None:  # what a process listens to ends with it
            logging.getLogger("rolltree").removeHandler(getattr(self.host, "_overheard", logging.NullHandler()))


class InProcess:
    """Spawns them; `processes` are all that ever were."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.refuse = 0
        """So many of the next ones die at their first call."""

    def spawn(self, kind: Callable[..., Any], *args: Any) -> Process:
        process = Process(lambda: kind(*args))
        if self.refuse:
            self.refuse -= 1
            process.dead = True
        self.processes.append(process)
        return process

    def share(self, value: Any) -> Any:
        return value

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.dead]
