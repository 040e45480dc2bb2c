"""Engines on one clock: who is told when a sequence has made its tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from studies.clock.engine import R, SimEngine
from studies.clock.timeline import Timeline


@dataclass(slots=True, eq=False)
class Floor(Generic[R]):
    """Whoever is about to change an engine says so with `touch`; its next end is then forecast anew."""

    spoken: Callable[[R, SimEngine[R]], None]
    """Told of every sequence that has made its tokens; it is off the engine by then."""
    time: Timeline = field(default_factory=Timeline)
    _dirty: dict[int, SimEngine[R]] = field(default_factory=dict[int, SimEngine[R]])

    def touch(self, engine: SimEngine[R]) -> None:
        """Let an engine come up to the present before it is changed."""
        engine.advance(self.time.now)
        self._dirty[engine.index] = engine

    def turn(self) -> None:
        """Go on to what happens next."""
        self.time.turn()
        self.forecast()

    def forecast(self) -> None:
        """Note when the next sequence of each changed engine ends."""
        for engine in self._dirty.values():
            engine.epoch += 1
            then = engine.forecast()
            if then < math.inf:
                self.time.at(then, lambda engine=engine, epoch=engine.epoch: self._due(engine, epoch))
        self._dirty.clear()

    def _due(self, engine: SimEngine[R], epoch: int) -> None:
        if epoch != engine.epoch:
            return
        self.touch(engine)
        while (trip := engine.due()) is not None:
            self.spoken(trip, engine)
