"""Other people's code beside the event loop: it may block, hang, or exit, and the run goes on.

One worker thread does the calls in order while they are quick, so that rollouts that step together also go on together
and stay one batch in the engine. A call that waits too long behind another gets a worker more. Workers are daemons: a
call that hangs is given up when its time is out, and keeps neither another call nor the program's end waiting.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeVar

from rolltree.task.items import TaskError

T = TypeVar("T")
WAIT = 0.05
"""Seconds a call waits behind others before another worker is hired."""
IDLE = 1.0
"""Seconds after which a worker without work goes home."""


class WorkerThreads:
    """Workers that take calls from one queue."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self.workers = 0
        """Those that work or wait for work, hung ones included."""

    def put(self, call: Callable[[], None]) -> None:
        """Have a call made."""
        self._calls.put(call)
        if self.workers == 0:
            self._hire()

    def help(self) -> None:
        """Hire a worker if calls are waiting."""
        if not self._calls.empty():
            self._hire()

    def _hire(self) -> None:
        with self._lock:
            self.workers += 1
        threading.Thread(target=self._work, name="rolltree-environment", daemon=True).start()

    def _work(self) -> None:
        with suppress(Empty):
            while True:
                self._calls.get(timeout=IDLE)()
        with self._lock:
            self.workers -= 1


_crew = WorkerThreads()


async def beside(call: Callable[[], T]) -> T:
    """What a blocking call returns or raises; giving up on it leaves its worker to itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            set_it(value)

    def run() -> None:
        if answer.cancelled():
            return
        try:
            with staying():
                told, value = answer.set_result, call()
        except Exception as error:
            # A future takes no StopIteration.
            told = answer.set_exception
            value = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
        except BaseException as error:
            told, value = answer.set_exception, TaskError(f"the environment left with {error!r} instead of an answer")
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(settle, told, value)

    _crew.put(run)
    hurry = loop.call_later(WAIT, _crew.help)
    try:
        return await answer
    finally:
        hurry.cancel()


def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of an asynchronous tool, from a worker of `beside`. All of them share one event loop, since a client
    that was opened in a loop is of no use in another."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


@contextmanager
def staying() -> Generator[None]:
    """In here `os._exit` ends what this thread does and not the program. A process that it forks may leave."""
    _leaving()
    _held.process = os.getpid()
    try:
        yield
    finally:
        _held.process = 0


_held = threading.local()
"""`process`: the process that the code of this thread must not end."""


@cache
def _leaving() -> None:
    leave = os._exit

    def exit_(status: int) -> NoReturn:
        if getattr(_held, "process", 0) == os.getpid():
            raise SystemExit(status)
        leave(status)

    os._exit = exit_


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run, args=(loop,), name="rolltree-tools", daemon=True).start()
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    # A tool that calls sys.exit() gets that as its own end; others go on being answered.
    while not loop.is_closed():
        with suppress(SystemExit, KeyboardInterrupt), staying():
            loop.run_forever()
