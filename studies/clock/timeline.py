"""Simulated time: calls that are due, in the order of their times, and of their asking where these are equal."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Timeline:
    """The clock that all parts of a world share."""

    now: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(
        default_factory=list[tuple[float, int, Callable[[], None]]]
    )
    _count: int = 0

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Call it then."""
        self._count += 1
        heapq.heappush(self._events, (time, self._count, call))

    @property
    def empty(self) -> bool:
        """Whether nothing will ever happen again."""
        return not self._events

    def turn(self) -> None:
        """Go on to the next call and make it."""
        self.now, _, call = heapq.heappop(self._events)
        call()
