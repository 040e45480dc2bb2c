"""One request in flight in a pool, seen from the caller's event loop."""

from __future__ import annotations

from collections.abc import Callable

from rolltree.engine.protocol import Request
from rolltree.engine.run import ToldRun
from rolltree.tree.node import Finish


class PoolRun(ToldRun):
    """A run in a pool, whose increments are reported on demand."""

    def __init__(self, request: Request, *, follow: bool) -> None:
        super().__init__(request)
        self.following = follow
        """Whether increments are reported: from the start, or once somebody iterates."""
        self.ask_stop: Callable[[Finish], None] = lambda finish: None
        self.ask_follow: Callable[[], None] = lambda: None

    def _attend(self) -> None:
        if not self.following:
            self.following = True
            self.ask_follow()

    def _halt(self, finish: Finish) -> None:
        self.ask_stop(finish)
