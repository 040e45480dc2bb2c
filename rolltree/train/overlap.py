"""A step under a schedule: a batch is awaited, trained in a thread while rollouts go on, and its weights published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rolltree.control.schedule import Group
from rolltree.generate.garbage import rare_collections
from rolltree.replay.harvest import Harvest
from rolltree.train.flight import Flight
from rolltree.train.parked import load_flight, save_flight
from rolltree.train.underway import Underway
from rolltree.tree import Tree

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Overlap:
    """A flight with the trainer's thread and what both did with their time."""

    flight: Flight
    underway: Underway = field(init=False)
    batch: list[Group] = field(default_factory=list[Group])
    """What is being trained."""
    _trainer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "rolltree-trainer"))
    _began: float = 0.0
    _learning: float = 0.0
    _busy: float = 0.0

    def __post_init__(self) -> None:
        self.underway = Underway(self.flight.config.prompts)
        self.flight.told = self.underway.settled

    async def harvest(self, version: int, recalls: int = 0) -> Harvest:
        """Go on, and wait for the next batch; so many of its trees come from earlier steps."""
        self.flight.want(self.flight.config.prompts - recalls)
        self._began, self._busy, self._learning = time.monotonic(), self.flight.busy_now(), 0.0
        with rare_collections():
            self.flight.begin()
            self.batch = await self.flight.batch()
        kept = [group.item.tree for group in self.batch]
        rest = [*(tree for group in self.batch for tree in group.item.lost), *self.flight.dropped()]
        out = Harvest(_named(kept), rest, 1, version, recalls, self.flight.sowing.waves.told())
        for tree in out.kept:
            for shape in self.flight.parts.shapers:
                shape(tree, self.flight.limit)
        return out

    async def learn(self, work: Callable[[], T]) -> T:
        """Train in the trainer's thread; rollouts go on in the engine meanwhile."""
        began = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._trainer, work)
        finally:
            self._learning = time.monotonic() - began

    async def trained(self) -> dict[str, float]:
        """The batch was trained: wait until weights may be published; returns what the schedule did."""
        await self.flight.trained()
        self.flight.scheduler.check()
        whole = max(time.monotonic() - self._began, 1e-9)
        numbers = self.underway.numbers(self.flight.scheduler, self.batch)
        self.batch = []
        return numbers | {
            "time/engine_idle": max(0.0, 1.0 - (self.flight.busy_now() - self._busy) / whole),
            "time/trainer_idle": max(0.0, 1.0 - self._learning / whole),
        }

    @property
    def waiting(self) -> int:
        """Leaves of finished groups that wait to be trained."""
        return sum(len(g.item.tree.leaves()) for g in self.flight.scheduler.ready.values())

    async def close(self) -> None:
        """End everything under way."""
        await self.flight.close()
        self._trainer.shutdown()

    def save(self, folder: Path) -> None:
        """Write what is under way; nothing may be growing that can be cut (`Flight.rest`)."""
        save_flight(self.flight, folder)

    def load(self, folder: Path) -> None:
        """Go back to what was written."""
        load_flight(self.flight, folder)


def _named(trees: list[Tree]) -> list[Tree]:
    """Names told apart, so that trees of several waves can be stored together; nobody grows them any more."""
    taken: set[str] = set()
    for tree in trees:
        name, count = tree.id, 1
        while tree.id in taken:
            count += 1
            tree.id = f"{name}+{count}"
        taken.add(tree.id)
    return trees
