"""Which engine gets a request: the one that has read its prefix, unless it is much busier than the idlest.

A group's prompt is read once if its requests stay together, and a straggling tree must not queue behind itself while
other engines idle; the two pull apart only under uneven load. (RollArt, arXiv 2512.22560, routes alike: least loaded,
sticky, with a cap.)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar


class Affine(Protocol):
    """What is routed."""

    @property
    def affinity(self) -> str:
        """Requests with the same one share prefixes; empty = it shares none."""
        ...


K = TypeVar("K")
R = TypeVar("R", bound=Affine)


class Router(Generic[K]):
    """Sticky least-loaded choice. An engine keeps its prefixes while load ≤ free + slack · (load of the idlest)."""

    def __init__(self, *, free: int = 8, slack: float = 1.5, homes: int = 65536) -> None:
        self.free = free
        self.slack = slack
        self._most = homes
        self._homes: OrderedDict[str, K] = OrderedDict()
        self._read: set[str] = set()
        """Affinities whose home has begun with them."""
        self._count: Counter[K] = Counter()

    def choose(self, affinity: str, loads: Mapping[K, int]) -> K:
        """One of the engines, given the requests in flight in each; ties go to the one with the fewest prefixes."""
        idlest = self._idlest(loads)
        if not affinity:
            return idlest
        home = self._homes.get(affinity)
        if home is None or home not in loads:
            self._settle(affinity, idlest)
            return idlest
        self._homes.move_to_end(affinity)
        return home if self._keeps(loads[home], loads[idlest]) else idlest

    def note(self, affinity: str, engine: K) -> None:
        """An engine has read a prefix."""
        if affinity and self._homes.get(affinity) == engine:
            self._read.add(affinity)

    def level(self, waiting: Mapping[K, Sequence[R]], loads: Mapping[K, int]) -> list[tuple[K, R]]:
        """Which of the requests that wait in engines, given in the order they came, should leave them, last ones first.

        A prefix that nobody has read yet moves with all who wait for it, and has a new home, where the new home is then
        less busy than the old one was. Who shares a prefix that its engine has read leaves only where that engine has
        more than `choose` would give it. The requests are then to be routed by `choose`.
        """
        left, moves = dict(loads), list[tuple[K, R]]()

        def move(engine: K, group: Sequence[R], to: K) -> None:
            left[engine] -= len(group)
            left[to] += len(group)
            moves.extend((engine, request) for request in group)

        for engine in sorted(waiting, key=lambda e: -loads[e]):
            for group in reversed(_groups(waiting[engine])):
                name = group[0].affinity
                at_home = self._homes.get(name) == engine
                if at_home and name in self._read:
                    for request in reversed(group):
                        idlest = self._idlest(left)
                        if self._keeps(left[engine] - 1, left[idlest]):
                            break
                        move(engine, [request], idlest)
                elif left[idlest := self._idlest(left)] + len(group) < left[engine]:
                    move(engine, group, idlest)
                    if at_home:
                        self._settle(name, idlest)
        return moves

    def forget(self, engine: K) -> None:
        """An engine has gone, and what it had read with it."""
        self._homes = OrderedDict((name, home) for name, home in self._homes.items() if home != engine)
        self._read &= self._homes.keys()
        del self._count[engine]

    def _keeps(self, load: int, least: int) -> bool:
        return load <= self.free + self.slack * least

    def _idlest(self, loads: Mapping[K, int]) -> K:
        return min(loads, key=lambda engine: (loads[engine], self._count[engine]))

    def _settle(self, affinity: str, engine: K) -> None:
        self._leave(affinity)
        self._homes[affinity] = engine
        self._count[engine] += 1
        if len(self._homes) > self._most:
            self._leave(next(iter(self._homes)))

    def _leave(self, affinity: str) -> None:
        if (home := self._homes.pop(affinity, None)) is not None:
            self._count[home] -= 1
            self._read.discard(affinity)


def _groups(requests: Sequence[R]) -> list[list[R]]:
    """Requests that share prefixes, in the order of their firsts; one that shares none is alone."""
    shared: dict[str, list[R]] = {}
    out: list[list[R]] = []
    for request in requests:
        group = shared.setdefault(request.affinity, []) if request.affinity else []
        if not group:
            out.append(group)
        group.append(request)
    return out
