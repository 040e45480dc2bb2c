"""What somebody's function prints: its beginning where the run prints, all of it in the run's log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TextIO

SHOWN = 2000
"""Characters of what one call prints that are shown."""
KEPT = 1_000_000
"""Characters of it that are kept for the log."""
LOG = logging.getLogger("rolltree.printed")
"""Where all of it is said, by who printed it; a run's log file listens."""
LOG.setLevel(logging.INFO)
LOG.propagate = False

_STREAMS = ("stdout", "stderr")


@dataclass
class _Call:
    written: int = 0
    texts: list[str] = field(default_factory=list[str])


_call: ContextVar[_Call | None] = ContextVar("printing", default=None)


class _Cut:
    """A channel that lets through what no call prints, and the beginning of what one does."""

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner

    def write(self, text: str) -> int:
        call = _call.get()
        if call is None:
            return self.inner.write(text)
        if call.written < KEPT:
            call.texts.append(text[: KEPT - call.written])
        if (left := SHOWN - call.written) > 0:
            self.inner.write(text[:left])
        call.written += len(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Between:
    """Puts the cut between both channels and who prints, as long as there are calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0

    def begin(self) -> None:
        with self._lock:
            self._calls += 1
            for name in _STREAMS:
                if not isinstance(getattr(sys, name), _Cut):
                    setattr(sys, name, _Cut(getattr(sys, name)))

    def end(self) -> None:
        with self._lock:
            self._calls -= 1
            for name in _STREAMS:
                # Who has put something else there meanwhile takes it away by himself.
                if not self._calls and isinstance(channel := getattr(sys, name), _Cut):
                    setattr(sys, name, channel.inner)


_between = _Between()


@contextmanager
def cut_prints(who: str) -> Generator[None]:
    """While this lasts, what this thread or task prints is cut, and the rest counted."""
    mine = _Call()
    _between.begin()
    token = _call.set(mine)
    try:
        yield
    finally:
        _call.reset(token)
        if mine.texts:
            LOG.info("%s printed: %s", who, "".join(mine.texts).rstrip("\n"))
        if mine.written > SHOWN:
            where = "; log.txt has the rest" if LOG.handlers else ""
            print(f"\n… {who} printed {mine.written:,} characters, {SHOWN:,} of them shown{where}", flush=True)
        _between.end()
