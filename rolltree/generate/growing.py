"""A continuation observed while it is written: probes on its tokens decide whether it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rolltree.engine.protocol import Sample
from rolltree.generate.decode import Seat, abandon, conclude, fail_seat, write
from rolltree.tree import Finish, Node

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


class Growing:
    """An `async with` block around one run. Iterate it for increments, already written in the node when you see them.

    Leaving the block early, by `stop()` or `break`, keeps what exists. After the block the node is concluded as by
    `Hand.extend`; a leaf stopped for no other reason than "abort" stays open: it can be cut, forced or extended.
    """

    def __init__(self, hand: Hand, start: Callable[[], list[Seat]]) -> None:
        self._hand = hand
        self._start = start
        self._seat: Seat | None = None
        self._failed = False
        self._heard_all = False

    @property
    def node(self) -> Node | None:
        """The node being written; None where the budget had nothing left."""
        return None if self._seat is None else self._seat.node

    def stop(self, finish: Finish = "abort") -> None:
        """End the run and keep what exists; any reason but "abort" also ends the rollout."""
        seat = self._seat
        if seat is not None and seat.run is not None:
            seat.halted = True
            seat.run.stop(finish)

    async def __aenter__(self) -> Growing:
        seats = self._start()
        self._seat = seats[0] if seats else None
        return self

    async def __aiter__(self) -> AsyncIterator[Sample]:
        seat = self._seat
        if seat is None or seat.run is None:
            return
        try:
            async for part in seat.run:
                if seat.written + len(part.actions) > seat.decoded.amount:
                    return  # more than was asked for: the whole sample is refused when it is concluded
                write(self._hand, seat, part)
                yield part
            self._heard_all = True
        except Exception as error:
            self._fail(seat, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seat = self._seat
        if seat is None or self._failed:
            return
        if isinstance(error, asyncio.CancelledError):
            await abandon(self._hand, seat)
            return
        if seat.run is None:
            self._fail(seat, seat.refused or RuntimeError("the engine returned no run"))
            return
        if not self._heard_all:
            self.stop()
        try:
            sample = await seat.run
        except asyncio.CancelledError:
            await abandon(self._hand, seat)
            raise
        except Exception as broken:
            self._fail(seat, broken)
            return
        conclude(self._hand, seat, sample)

    def _fail(self, seat: Seat, error: Exception) -> None:
        self._failed = True
        fail_seat(self._hand, seat, error, 1)
