"""One card for trainer and engine: the engine sleeps while the trainer learns."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rolltree.engine.protocol import Engine, Sleeper


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
