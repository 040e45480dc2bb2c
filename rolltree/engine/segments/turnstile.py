"""Lets work in until it is closed; closing waits until everything inside has left."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Turnstile:
    """Several may close it, each opens it again; it lets in while nobody holds it closed."""

    def __init__(self) -> None:
        self._closed = 0
        self._inside = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> None:
        while self._closed:
            await self._change()
        self._inside += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        self._tell()

    async def close(self) -> None:
        """Let nobody in any more and wait until nobody is inside; who is cancelled while waiting has closed nothing."""
        self._closed += 1
        try:
            while self._inside:
                await self._change()
        except BaseException:
            self.open()
            raise

    def open(self) -> None:
        """Take one closing back."""
        self._closed -= 1
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()
