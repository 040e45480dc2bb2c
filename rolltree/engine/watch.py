"""A watchdog: an engine that has something to do and makes no progress is named, with what it is doing.

It only speaks. Nobody but the user can tell a dead engine from one that reads a very long prefix on a slow machine.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Protocol

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
