"""Rollouts on the exact engine: weights are tables that change with every update, training takes some ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rolltree.control.plan import Control, Uniform
from rolltree.control.schedule import Group, Schedule
from rolltree.engine.protocol import Engine
from rolltree.engine.tabular import TabularEngine
from rolltree.filter.groups import GroupFilter
from rolltree.generate.independent import Independent
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.config import ControlState, RolloutConfig
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.executor import RolloutExecutor
from rolltree.rollout.scheduled import fitted
from rolltree.rollout.state import load_state, save_state
from rolltree.task.protocol import Task
from rolltree.testing.tiny import CODEC, EMBEDDINGS, SpellTask, policy
from rolltree.tree import Tree

BATCH, SIZE = 3, 3


def weights(version: int) -> Callable[[tuple[int, ...]], list[float]]:
    """The policy after so many updates: another one each time."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        return policy((*prefix, version))

    return row


@dataclass(repr=False)  # the event loop asks for one when it ends
class Flown:
    """What came of a run."""

    executor: RolloutExecutor
    groups: list[Group] = field(default_factory=list[Group])
    """In order of being settled."""
    trained: list[list[Group]] = field(default_factory=list[list[Group]])
    dropped: list[Tree] = field(default_factory=list[Tree])


def new_run(
    schedule: Schedule, task: Task, engine: Engine, strategy: TreeStrategy | None = None,
    filters: tuple[GroupFilter, ...] = (), seed: int = 0, control: Control | None = None,
) -> Flown:  # fmt: skip
    parts = replace(
        load_recipe("grpo").build(), strategy=strategy or Independent(SIZE), filters=filters,
        control=control or Uniform(),
    )  # fmt: skip
    config, cursor = RolloutConfig(prompts=BATCH, seed=seed), Cursor(task, seed)
    fit, unit, _ = fitted(schedule, parts)
    flown = Flown(RolloutExecutor(parts, engine, task, config, fit, unit, ControlState(parts.control), cursor))
    flown.executor.on_settled = flown.groups.append
    return flown


def tabular(*, shuffle: int | None = None) -> TabularEngine:
    return TabularEngine(weights(0), CODEC, shuffle=shuffle, embeddings=EMBEDDINGS)


async def step(flown: Flown, engine: Engine, version: int, ticks: int = 7) -> None:
    """One update: training takes so many turns of the event loop."""
    flown.executor.begin()
    flown.trained.append(await flown.executor.batch())
    flown.dropped += flown.executor.discarded.take()
    for _ in range(ticks):
        await asyncio.sleep(0)
    await flown.executor.trained()
    await engine.update_weights(weights(version), version)
    flown.executor.scheduler.check()


def fly(schedule: Schedule, *, task: Task | None = None, engine: Engine | None = None, updates: int = 5,
        ticks: int = 7, **also: Any) -> Flown:  # fmt: skip
    task, engine = task or SpellTask(), engine or tabular()

    async def run() -> Flown:
        flown = new_run(schedule, task, engine, **also)
        try:
            for version in range(1, updates + 1):
                await step(flown, engine, version, ticks)
        finally:
            await flown.executor.close()
        flown.dropped += flown.executor.discarded.take()
        return flown

    return asyncio.run(run())


async def moved(flown: Flown, folder: Path, schedule: Schedule, task: Task, engine: Engine, **also: Any) -> Flown:
    """The run written down and read back by another one, as after a restart."""
    await flown.executor.rest()
    save_state(flown.executor, folder)
    fresh = new_run(schedule, task, engine, **also)
    fresh.groups, fresh.trained, fresh.dropped = flown.groups, flown.trained, flown.dropped
    fresh.executor.on_settled = fresh.groups.append
    load_state(fresh.executor, folder, len(flown.trained))
    return fresh
