"""Fewer garbage collections while forests grow.

What a growing forest allocates stays alive, so the cyclic collector visits all of it again and again and finds nothing:
more than half of the scheduling time at 100,000 requests in flight. The sessions of a gateway are such a forest.
Collections become rarer, never off.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

Thresholds = tuple[int, int, int]
RARELY: Thresholds = (200_000, 200, 50)
SERVING: Thresholds = (20_000, 20, 20)
"""Of a server that may run for weeks: what requests leave in cycles is found after some hundreds of them."""
_asked: list[Thresholds] = []
"""One entry per run in progress."""
_own: list[Thresholds] = []
"""The process's own thresholds, while runs are in progress."""


@contextmanager
def rare_collections(thresholds: Thresholds = RARELY) -> Generator[None]:
    """Collect rarely inside; runs may overlap, the rarest wins, and the last one to end restores the thresholds."""
    if not _asked:
        _own[:] = [gc.get_threshold()]
    _asked.append(thresholds)
    gc.set_threshold(*max(_asked))
    try:
        yield
    finally:
        _asked.remove(thresholds)
        gc.set_threshold(*max(_asked, default=_own[0]))
