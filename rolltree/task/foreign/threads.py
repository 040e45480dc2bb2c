"""Other people's code beside the event loop: it may block, hang, or exit, and the run goes on.

Every call has a daemon thread of its own rather than one of a pool: a call that hangs is given up when its time is out,
holds no place that another call would need, and does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from rolltree.task.items import TaskError

T = TypeVar("T")


async def beside(call: Callable[[], T]) -> T:
    """What a blocking call returns or raises; giving up on it leaves its thread to itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            set_it(value)

    def run() -> None:
        try:
            told, value = answer.set_result, call()
        except Exception as error:
            # A future takes no StopIteration.
            told = answer.set_exception
            value = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
        except BaseException as error:
            told, value = answer.set_exception, TaskError(f"the environment left with {error!r} instead of an answer")
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(settle, told, value)

    threading.Thread(target=run, name="rolltree-environment", daemon=True).start()
    return await answer


def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of an asynchronous tool, from a thread of `beside`. All of them share one event loop, since a client
    that was opened in a loop is of no use in another."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rolltree-tools", daemon=True).start()
    return loop
