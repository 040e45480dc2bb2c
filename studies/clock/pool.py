"""Engines of one role: the one with the fewest sequences comes next; who finds none waits in line."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic

from studies.clock.engine import R, SimEngine


@dataclass(slots=True, eq=False)
class Pool(Generic[R]):
    """A set of engines that may grow and shrink. Callers say when an engine's load has `changed`."""

    waiting: deque[R] = field(default_factory=deque[R])
    _members: dict[int, SimEngine[R]] = field(default_factory=dict[int, SimEngine[R]])
    _loads: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def engines(self) -> Iterable[SimEngine[R]]:
        """Those that take sequences, in the order they came."""
        return self._members.values()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, engine: SimEngine[R]) -> bool:
        return engine.index in self._members

    def join(self, engine: SimEngine[R]) -> None:
        """From now on it takes sequences."""
        self._members[engine.index] = engine
        self.changed(engine)

    def leave(self, engine: SimEngine[R]) -> None:
        """From now on it takes none; what it has goes on until somebody moves it."""
        del self._members[engine.index]

    def changed(self, engine: SimEngine[R]) -> None:
        """Its load is another one now."""
        heapq.heappush(self._loads, (engine.load, engine.index))

    def free(self) -> SimEngine[R] | None:
        """The member with the fewest sequences, the lowest number where several have; None = all are full."""
        while self._loads:
            load, index = self._loads[0]
            engine = self._members.get(index)
            if engine is not None and engine.load == load:
                return engine if load < engine.hardware.slots else None
            heapq.heappop(self._loads)
        return None
