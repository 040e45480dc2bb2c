"""Lockstep: no engine makes a token while the program still reacts to the last one's news, and engines of one program
step one after the other. So requests come at the same step, and share a batch with the same others, in every run.

What a program does within `REACTION` turns of its event loop is a reaction; what takes longer, such as an answer from
another process, comes when it comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

REACTION = 64
"""Turns of an event loop that whoever awaits news gets to react in."""
_LOOK = 0.1


class Turns:
    """Whose turn it is to compute, among the engines that share it."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._busy: set[int] = set()
        """Engines that may have something to do."""
        self._holder: int | None = None
        self._members = 0

    def join(self) -> int:
        """The place of one more engine."""
        with self._change:
            self._members += 1
            return self._members - 1

    def stir(self, me: int) -> None:
        """An engine was asked for something."""
        with self._change:
            self._busy.add(me)

    def take(self, me: int, settle: Callable[[], None], going: Callable[[], bool]) -> None:
        """Wait for one's turn; not where the engine is being ended. From rest, the first in order begins, after the
        program has said all that it has to say at once (`settle`)."""
        if self._wait(me, going):
            settle()
            with self._change:
                self._holder = min(self._busy, default=me)
                self._change.notify_all()
            self._wait(me, going)

    def give(self, me: int) -> None:
        """Let the next one compute that has something to do."""
        with self._change:
            if self._holder == me:
                self._pass(me)

    def rest(self, me: int, idle: Callable[[], bool]) -> None:
        """An engine has nothing to do, unless it was asked for something meanwhile."""
        with self._change:
            if idle():
                self._busy.discard(me)
                if self._holder == me:
                    self._pass(me)

    def _pass(self, me: int) -> None:
        self._holder = min(self._busy, key=lambda other: (other - me - 1) % self._members, default=None)
        self._change.notify_all()

    def _wait(self, me: int, going: Callable[[], bool]) -> bool:
        """Until the turn is this engine's; whether nobody had it."""
        with self._change:
            while self._holder not in (None, me) and going():
                self._change.wait(_LOOK)
            was, self._holder = self._holder, me if self._holder is None else self._holder
            self._busy.add(me)
            return was is None


def let_react(loops: Iterable[asyncio.AbstractEventLoop], going: Callable[[], bool]) -> None:
    """Wait until programs in these event loops have reacted to what was said there."""
    for loop in set(loops):
        heard = threading.Event()
        try:
            loop.call_soon_threadsafe(_count, loop, REACTION, heard)
        except RuntimeError:
            continue  # the loop is closed: nobody is left to react
        while not heard.wait(_LOOK) and going() and loop.is_running():
            pass


def _count(loop: asyncio.AbstractEventLoop, turns: int, heard: threading.Event) -> None:
    """Set the event that many turns from now."""
    if turns:
        loop.call_soon(_count, loop, turns - 1, heard)
    else:
        heard.set()
