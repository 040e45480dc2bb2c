"""A continuation observed while it is written: probes on its tokens decide whether it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from rolltree.engine.protocol import Sample
from rolltree.generate.decode import abandon, conclude, fail_request, write
from rolltree.generate.recorder import Recorder
from rolltree.generate.requests import PendingRequest
from rolltree.tree import Finish, Node


class Growing:
    """An `async with` block around one run. Iterate it for increments, already written in the node when you see them.

    Leaving the block early, by `stop()` or `break`, keeps what exists. After the block the node is concluded as by
    `Hand.extend`; a leaf stopped for no other reason than "abort" stays open: it can be cut, forced or extended.
    """

    def __init__(self, hand: Recorder, start: Callable[[], list[PendingRequest]]) -> None:
        self._hand = hand
        self._start = start
        self._pending: PendingRequest | None = None
        self._failed = False
        self._heard_all = False

    @property
    def node(self) -> Node | None:
        """The node being written; None where the budget had nothing left."""
        return None if self._pending is None else self._pending.node

    def stop(self, finish: Finish = "abort") -> None:
        """End the run and keep what exists; any reason but "abort" also ends the rollout."""
        pending = self._pending
        if pending is not None and pending.run is not None:
            pending.halted = True
            pending.run.stop(finish)

    async def __aenter__(self) -> Growing:
        pending_requests = self._start()
        self._pending = pending_requests[0] if pending_requests else None
        return self

    async def __aiter__(self) -> AsyncIterator[Sample]:
        pending = self._pending
        if pending is None or pending.run is None:
            return
        try:
            async for part in pending.run:
                if pending.written + len(part.actions) > pending.decoded.amount:
                    return  # more than was asked for: the whole sample is refused when it is concluded
                write(self._hand, pending, part)
                yield part
            self._heard_all = True
        except Exception as error:
            self._fail(pending, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pending = self._pending
        if pending is None or self._failed:
            return
        if isinstance(error, asyncio.CancelledError):
            await abandon(self._hand, pending)
            return
        if pending.run is None:
            self._fail(pending, pending.refused or RuntimeError("the engine returned no run"))
            return
        if not self._heard_all:
            self.stop()
        try:
            sample = await pending.run
        except asyncio.CancelledError:
            await abandon(self._hand, pending)
            raise
        except Exception as broken:
            self._fail(pending, broken)
            return
        conclude(self._hand, pending, sample)

    def _fail(self, pending: PendingRequest, error: Exception) -> None:
        self._failed = True
        fail_request(self._hand, pending, error, 1)
