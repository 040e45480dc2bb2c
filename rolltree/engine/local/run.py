"""One request in flight, seen from the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rolltree.engine.protocol import Request
from rolltree.engine.run import ToldRun
from rolltree.tree.node import Finish


class LocalRun(ToldRun):
    """A run in the embedded engine, whose thread sets `begun` and `ended`."""

    def __init__(self, request: Request, ids: Any, limit: int, key: int, top: int) -> None:
        super().__init__(request)
        self.ids = ids
        """Prefix as int64."""
        self.limit = limit
        """Total length at which it ends."""
        self.key = key
        self.top = top
        self.entropy = any(w.startswith("entropy") for w in request.want)
        self.hidden = "hidden" in request.want
        self.streaming = False
        """Set once somebody iterates; the engine then reports increments."""
        self.ask_stop: Callable[[LocalRun, Finish], None] = lambda run, finish: None

    def _attend(self) -> None:
        self.streaming = True

    def _halt(self, finish: Finish) -> None:
        self.ask_stop(self, finish)
