"""Which engine gets a request: the one that has read its prefix, unless it is much busier than the idlest.

A group's prompt is read once if its requests stay together, and a straggling tree must not queue behind itself while
other engines idle; the two pull apart only under uneven load. (RollArt, arXiv 2512.22560, routes alike: least loaded,
sticky, with a cap.)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")


class Router(Generic[K]):
    """Sticky least-loaded choice. An engine keeps its prefixes while load ≤ free + slack · (load of the idlest)."""

    def __init__(self, *, free: int = 8, slack: float = 1.5, homes: int = 65536) -> None:
        self.free = free
        self.slack = slack
        self._most = homes
        self._homes: OrderedDict[str, K] = OrderedDict()
        self._count: Counter[K] = Counter()

    def choose(self, affinity: str, loads: Mapping[K, int]) -> K:
        """One of the engines, given the requests in flight in each; ties go to the one with the fewest prefixes."""
        idlest = min(loads, key=lambda engine: (loads[engine], self._count[engine]))
        if not affinity:
            return idlest
        home = self._homes.get(affinity)
        if home is None or home not in loads:
            self._settle(affinity, idlest)
            return idlest
        self._homes.move_to_end(affinity)
        return home if loads[home] <= self.free + self.slack * loads[idlest] else idlest

    def forget(self, engine: K) -> None:
        """An engine has gone, and what it had read with it."""
        self._homes = OrderedDict((name, home) for name, home in self._homes.items() if home != engine)
        del self._count[engine]

    def _settle(self, affinity: str, engine: K) -> None:
        self._homes[affinity] = engine
        self._count[engine] += 1
        if len(self._homes) > self._most:
            _, oldest = self._homes.popitem(last=False)
            self._count[oldest] -= 1
