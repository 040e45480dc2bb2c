"""Instances that only prefill, one request at a time, and how requests come to them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from studies.clock.hardware import Hardware
from studies.clock.serving.prefixes import Prefixes
from studies.clock.serving.traffic import Ask
from studies.clock.timeline import Timeline

Forwarding = Literal["offer", "reported", "reported and sent"]
"""offer: a busy instance rejects and the gateway asks the next; a request that nobody takes waits at the gateway.
reported: to the shortest queue by reports that are some seconds old. reported and sent: the gateway adds what it has
sent since."""


NEAR = 16
"""Idle instances that the gateway looks at for a kept prefix."""


@dataclass(slots=True, eq=False)
class Prefiller:
    """An instance that prefills."""

    index: int
    hardware: Hardware
    prefixes: Prefixes = field(default_factory=Prefixes)
    busy: bool = False
    line: deque[Ask] = field(default_factory=deque[Ask])
    """Its own queue; nothing ever stands in it where busy instances reject."""


@dataclass(slots=True, eq=False)
class PrefillPool:
    """The instances of one or more scenarios with the gateway before them."""

    time: Timeline
    members: Sequence[Prefiller]
    forwarding: Forwarding
    patience: float
    """Seconds until a first token is due; a request that can no longer have it is given up."""
    delay: float
    """Seconds between reports of queue lengths."""
    filled: Callable[[Ask], None]
    late: Callable[[Ask], None]
    rng: np.random.Generator
    offers: int = 0
    rejected: int = 0
    _line: deque[Ask] = field(default_factory=deque[Ask])
    _free: list[Prefiller] = field(default_factory=list[Prefiller])
    _seen: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])
    _told: float = -1.0

    def __post_init__(self) -> None:
        self._free = list(self.members)

    def arrive(self, ask: Ask) -> None:
        """Bring a request to an instance, or let it wait."""
        if self.forwarding != "offer":
            member = self.members[self._shortest()]
            member.line.append(ask)
            self._next(member)
            return
        self._line.append(ask)
        self._hand_out()

    def _hand_out(self) -> None:
        """Whoever has waited longest is offered first; idle instances that keep its prefix come before others."""
        while self._line:
            ask = self._line.popleft()
            if self._hopeless(ask):
                self.late(ask)
                continue
            self.offers += 1
            if not self._free:
                self.rejected += len(self.members)
                self._line.appendleft(ask)
                return
            warm = next((m for m in self._free[:NEAR] if ask.scenario in m.prefixes.held), self._free[0])
            self._free.remove(warm)
            self._begin(warm, ask)

    def _begin(self, member: Prefiller, ask: Ask) -> None:
        member.busy = True
        self.time.at(self.time.now + self._seconds(member, ask), lambda: self._done(member, ask))

    def _hopeless(self, ask: Ask) -> bool:
        """Whether even an instance that keeps its prefix would be too late."""
        least = self.members[0].hardware.prefill * (ask.context - ask.prefix)
        return self.time.now + least > ask.arrives + self.patience

    def _seconds(self, member: Prefiller, ask: Ask) -> float:
        return member.hardware.prefill * member.prefixes.fresh(ask)

    def _done(self, member: Prefiller, ask: Ask) -> None:
        member.busy = False
        ask.first = min(ask.first, self.time.now)
        if self.forwarding == "offer":
            self._free.append(member)
            self._hand_out()
        else:
            self._next(member)
        self.filled(ask)

    def _next(self, member: Prefiller) -> None:
        while member.line and not member.busy:
            ask = member.line.popleft()
            if self._hopeless(ask):
                self.late(ask)
            else:
                self._begin(member, ask)

    def _shortest(self) -> int:
        """By the latest reports, equal ones in random order."""
        if self.delay == 0 or self.time.now >= self._told + self.delay or self._told < 0:
            self._told = self.time.now
            tie = self.rng.random(len(self.members))
            self._seen = [(len(m.line) + m.busy, float(t), m.index) for m, t in zip(self.members, tie, strict=True)]
            heapq.heapify(self._seen)
        length, tie, index = self._seen[0]
        if self.forwarding == "reported and sent":
            heapq.heapreplace(self._seen, (length + 1, tie, index))
        else:
            # Among equal reports the gateway goes round.
            heapq.heapreplace(self._seen, (length, 1 + tie, index))
        return index
