"""Batches of rollouts, one after the other: what a trainer takes from the executor, with its numbers."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from rolltree.control.schedule import Group
from rolltree.generate.runner import rare_collections
from rolltree.replay.buffer import RolloutBatch
from rolltree.rollout.executor import RolloutExecutor
from rolltree.rollout.slots import PromptGroup
from rolltree.rollout.state import load_state, save_state
from rolltree.rollout.underway import Underway
from rolltree.tree import Tree
from rolltree.tree.store.values import read_json

SETTLED = "settled.json"
"""The groups that were settled last, beside what is under way."""


@dataclass(slots=True, eq=False)
class Collector:
    """An executor, and how busy its engine was."""

    executor: RolloutExecutor
    underway: Underway = field(init=False)
    batch: list[Group[PromptGroup]] = field(default_factory=list[Group[PromptGroup]])
    """What is being trained."""
    _began: float = 0.0
    _busy: float = 0.0
    _reported: int = 0
    """In lock-step: plans whose trees a batch has named as fresh."""

    def __post_init__(self) -> None:
        self.underway = Underway(self.executor.prompts)
        if not self.lockstep:
            self.executor.on_settled = self.underway.settled

    @property
    def lockstep(self) -> bool:
        """Whether nothing is under way beside training."""
        return self.executor.schedule.lockstep

    async def collect(self, version: int, recalls: int = 0) -> RolloutBatch:
        """Go on, and wait for the next batch; so many trees of the next plan's come from earlier steps."""
        executor, scheduler = self.executor, self.executor.scheduler
        executor.want(executor.prompts - recalls)
        self._began, self._busy = time.monotonic(), executor.busy_now()
        with rare_collections():
            executor.begin()
            groups = await executor.batch()
        self.batch = sorted(groups, key=lambda group: (group.plan, group.item.place))
        kept = [group.item.tree for group in self.batch]
        rest = [tree for group in self.batch for tree in group.item.discarded]
        rest += executor.discarded.take(scheduler.version if self.lockstep else None)
        recalled = executor.prompts - scheduler.size
        batch = RolloutBatch(_named(kept), rest, version, recalled, executor.queue.plans.ended_numbers())
        for tree in batch.kept:
            for shape in executor.parts.shapers:
                shape(tree, executor.limit)
        batch.fresh = self._fresh(batch)
        return batch

    def _fresh(self, batch: RolloutBatch) -> list[Tree]:
        """Trees that no earlier batch has named as fresh: those of this one, or of the plans that ran ahead."""
        if not self.lockstep:
            return batch.trees
        scheduler, since = self.executor.scheduler, self._reported
        self._reported = self.executor.queue.plans.begun
        ahead = [group for group in scheduler.ready.values() if group.plan >= since]
        mine = batch.trees if scheduler.version >= since else []
        return [*mine, *(tree for group in ahead for tree in group.item.trees()), *self.executor.discarded.since(since)]

    async def trained(self, learning: float) -> dict[str, float]:
        """The batch was trained, in so many seconds: wait until weights may be published; what the schedule did."""
        await self.executor.trained()
        self.executor.scheduler.check()
        batch, self.batch = self.batch, []
        if self.lockstep:
            return {}
        whole = max(time.monotonic() - self._began, 1e-9)
        return self.underway.numbers(self.executor.scheduler, batch) | {
            "time/engine_idle": max(0.0, 1.0 - (self.executor.busy_now() - self._busy) / whole),
            "time/trainer_idle": max(0.0, 1.0 - learning / whole),
        }

    @property
    def waiting(self) -> int:
        """Leaves of finished groups that wait to be trained."""
        return sum(len(g.item.tree.leaves()) for g in self.executor.scheduler.ready.values())

    async def rest(self) -> None:
        """Let nothing grow that could be cut, so that a checkpoint holds it as it stands."""
        await self.executor.rest()

    async def close(self) -> None:
        """End everything under way."""
        await self.executor.close()

    def save(self, folder: Path) -> None:
        """Write what is under way; nothing may be growing that can be cut (`rest`)."""
        save_state(self.executor, folder)
        (folder / SETTLED).write_text(json.dumps(list(self.underway.recent)))

    def load(self, folder: Path, done: int) -> None:
        """Go back to what was written when so many steps were done."""
        load_state(self.executor, folder, done)
        if (folder / SETTLED).is_file():
            settled: list[tuple[int, bool]] = read_json((folder / SETTLED).read_text())
            self.underway.recent.extend((length, trained) for length, trained in settled)
        self._reported = self.executor.queue.plans.begun


def _named(trees: list[Tree]) -> list[Tree]:
    """Names told apart, so that trees of several plans can be stored together; nobody grows them any more."""
    taken: set[str] = set()
    for tree in trees:
        name, count = tree.id, 1
        while tree.id in taken:
            count += 1
            tree.id = f"{name}+{count}"
        taken.add(tree.id)
    return trees
