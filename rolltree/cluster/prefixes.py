"""Which prefixes an engine's process has seen requests of, by what a pool knows them by: their affinity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.engine.protocol import Request
from rolltree.tree.node import Array

_KNOWN = 4096
"""Affinities remembered, those used last."""
_HOT = 64
"""Most prefixes that are named to a new engine."""


@dataclass(slots=True)
class Seen:
    """What all requests of an affinity begin with, and how many they were."""

    prefix: Array
    requests: int = 1


class SeenPrefixes:
    """Notes requests; every tree's prompt stands for all that was written below it."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    def note(self, request: Request) -> None:
        """A request has come."""
        name = request.affinity
        if not name:
            return
        if (seen := self._seen.get(name)) is None:
            self._seen[name] = Seen(request.prefix)
            if len(self._seen) > _KNOWN:
                self._seen.popitem(last=False)
            return
        self._seen.move_to_end(name)
        seen.requests += 1
        seen.prefix = seen.prefix[: common(seen.prefix, request.prefix)]

    @property
    def names(self) -> list[str]:
        """Affinities of which something is known, those used last first."""
        return [name for name, seen in reversed(self._seen.items()) if len(seen.prefix)]

    def texts(self, names: Sequence[str]) -> list[Array]:
        """What the requests of these begin with."""
        return [seen.prefix for name in names if (seen := self._seen.get(name)) is not None and len(seen.prefix)]

    def hottest(self) -> list[Array]:
        """What most requests begin with."""
        most = sorted((seen for seen in self._seen.values() if seen.requests > 1), key=lambda seen: -seen.requests)
        return [seen.prefix for seen in most[:_HOT] if len(seen.prefix)]


def common(one: Array, other: Array) -> int:
    """With how many tokens both begin."""
    n = min(len(one), len(other))
    same = one[:n] == other[:n]
    return n if same.all() else int(np.argmin(same))
