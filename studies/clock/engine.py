"""One simulated engine: all its sequences advance a token per step, so their ends wait in a heap by progress."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rolltree.control.schedule import Segment
from studies.clock.hardware import Hardware

SLACK = 1e-6
"""Tokens by which a float may miss a whole number of them."""


@dataclass(slots=True, eq=False, kw_only=True)
class Running:
    """A sequence that an engine decodes."""

    id: int
    left: int
    """Tokens still to be made until it leaves the engine."""
    context: int = 0
    """Tokens that stood before `made`."""
    engine: SimEngine[Any] | None = None
    began: float = 0.0
    """The engine's progress when the present run of tokens began."""
    made: list[Segment] = field(default_factory=list[Segment])
    loose: int = 0
    """Tokens of `made` that a stop in the middle of a turn may take back."""


R = TypeVar("R", bound=Running)


@dataclass(slots=True, eq=False)
class SimEngine(Generic[R]):
    """Progress counts the tokens that a sequence present all along would have made."""

    index: int
    hardware: Hardware
    version: int = 0
    progress: float = 0.0
    stall: float = 0.0
    """Seconds of prefill and reloading that come before the next step."""
    at: float = 0.0
    active: dict[int, R] = field(default_factory=dict[int, R])
    """Sequences that decode, by their ids."""
    held: int = 0
    """Sequences that wait for an environment."""
    epoch: int = 0
    """Counts forecasts: an older one is void."""
    _ends: list[tuple[float, int, int, R]] = field(default_factory=list[tuple[float, int, int, R]])
    _added: int = 0
    _steps: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self._steps = [self.hardware.step(n) for n in range(self.hardware.slots + 1)]

    @property
    def load(self) -> int:
        """Slots in use."""
        return len(self.active) + self.held

    def advance(self, now: float) -> None:
        """Let time pass."""
        passed, self.at = now - self.at, now
        stalled = min(self.stall, passed)
        self.stall -= stalled
        if self.active:
            self.progress += (passed - stalled) / self._steps[len(self.active)]

    def add(self, trip: R, prefill: int) -> None:
        """Decode a sequence from now on, after a prefill of so many tokens."""
        trip.engine, trip.began = self, self.progress
        self.stall += self.hardware.prefill * prefill
        self.active[trip.id] = trip
        # A rollout that was stopped before it made a token may come back with the same end.
        self._added += 1
        heapq.heappush(self._ends, (self.progress + trip.left, trip.id, self._added, trip))

    def cut(self, trip: R) -> None:
        """Book what a sequence has made by now."""
        tokens = min(math.floor(self.progress - trip.began + SLACK), trip.left)
        if tokens > 0:
            trip.made.append(Segment(self.version, tokens))
            trip.left -= tokens
            trip.loose += tokens
            trip.began += tokens

    def remove(self, trip: R) -> None:
        """Stop a sequence, what it made booked."""
        self.cut(trip)
        del self.active[trip.id]

    def due(self) -> R | None:
        """A sequence that has made all its tokens, taken off; None if there is none.

        One at a time: what follows from one end may stop others that end at the same moment.
        """
        while self._ends and (self._void(self._ends[0][3]) or self._ends[0][0] <= self.progress + SLACK):
            trip = heapq.heappop(self._ends)[3]
            if not self._void(trip):
                self.remove(trip)
                return trip
        return None

    def forecast(self) -> float:
        """When the next sequence ends, if nothing changes; infinity if none runs."""
        while self._ends and self._void(self._ends[0][3]):
            heapq.heappop(self._ends)
        if not self._ends:
            return math.inf
        ahead = max(self._ends[0][0] - self.progress, 0.0)
        return self.at + self.stall + ahead * self._steps[len(self.active)]

    def reload(self, version: int, seconds: float) -> None:
        """Take new weights while sequences are under way: they go on after so many seconds, and after their contexts
        were computed anew."""
        contexts = 0
        for trip in self.active.values():
            self.cut(trip)
            contexts += trip.context + sum(s.tokens for s in trip.made)
        self.stall += seconds + self.hardware.prefill * contexts
        self.version = version

    def _void(self, trip: R) -> bool:
        return self.active.get(trip.id) is not trip
