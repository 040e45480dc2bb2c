"""What a step frees stays with the process, so that the next step need not ask the system for it page by page."""

from __future__ import annotations

import ctypes
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache

from rolltree.engine.protocol import Engine, Sleeper

# One card for trainer and engine: the engine sleeps while the trainer learns.


@asynccontextmanager
async def card_to_itself(engine: Engine, *, busy: bool) -> AsyncGenerator[None]:
    """The card for the learner alone, unless the engine cannot sleep or is `busy`: rollouts go on while it learns."""
    if busy or not isinstance(engine, Sleeper) or not engine.sleeps:
        yield
        return
    await engine.sleep()
    try:
        yield
    finally:
        await engine.wake()


LARGEST = 32 << 20
"""Pieces up to this size come from the heap; more than glibc allows on 64 bits cannot be asked for."""
KEPT = 1 << 30
"""Most that stays free at the heap's end."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def keep_freed() -> bool:
    """Let glibc's allocator keep what is freed, for the rest of the process; False where there is none to ask.

    By itself it gives the end of the heap back as soon as more than twice its largest piece is free there. Where a
    step holds the forward passes of several micro-batches that is every step, and taking the pages again costs 5 %.
    Whoever has set glibc's own variable for it has decided otherwise.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        ask = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # The order matters: either call ends glibc's own adjusting of both.
    return bool(ask(_M_MMAP_THRESHOLD, LARGEST)) and bool(ask(_M_TRIM_THRESHOLD, KEPT))
