"""A flight on the exact engine: weights are tables that change with every update, training takes some ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rolltree.contract.tiny import CODEC, EMBEDDINGS, SpellTask, policy
from rolltree.control.plan import Control, Uniform
from rolltree.control.schedule import Group, Schedule
from rolltree.engine.protocol import Engine
from rolltree.engine.tabular import TabularEngine
from rolltree.filter.groups import GroupFilter
from rolltree.generate.independent import Independent
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Task
from rolltree.train.collect import Cursor
from rolltree.train.config import TrainConfig
from rolltree.train.flight import Flight
from rolltree.train.parked import load_flight, save_flight
from rolltree.train.scheduled import fitted
from rolltree.train.steering import Steering
from rolltree.tree import Tree

BATCH, SIZE = 3, 3


def weights(version: int) -> Callable[[tuple[int, ...]], list[float]]:
    """The policy after so many updates: another one each time."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        return policy((*prefix, version))

    return row


@dataclass(repr=False)  # the event loop asks for one when it ends
class Flown:
    """What came of a flight."""

    flight: Flight
    groups: list[Group] = field(default_factory=list[Group])
    """In order of being settled."""
    trained: list[list[Group]] = field(default_factory=list[list[Group]])
    dropped: list[Tree] = field(default_factory=list[Tree])


def new_flight(
    schedule: Schedule, task: Task, engine: Engine, strategy: TreeStrategy | None = None,
    filters: tuple[GroupFilter, ...] = (), seed: int = 0, control: Control | None = None,
) -> Flown:  # fmt: skip
    parts = replace(
        load_recipe("grpo").build(), strategy=strategy or Independent(SIZE), filters=filters,
        control=control or Uniform(),
    )  # fmt: skip
    config, cursor = TrainConfig(prompts=BATCH, seed=seed), Cursor(task, seed)
    fit, way, _ = fitted(schedule, parts, config)
    flown = Flown(Flight(parts, engine, task, config, fit, way, Steering(parts.control), cursor))
    flown.flight.told = flown.groups.append
    return flown


def tabular(*, shuffle: int | None = None) -> TabularEngine:
    return TabularEngine(weights(0), CODEC, shuffle=shuffle, embeddings=EMBEDDINGS)


async def step(flown: Flown, engine: Engine, version: int, ticks: int = 7) -> None:
    """One update: training takes so many turns of the event loop."""
    flown.flight.begin()
    flown.trained.append(await flown.flight.batch())
    flown.dropped += flown.flight.dropped()
    for _ in range(ticks):
        await asyncio.sleep(0)
    await flown.flight.trained()
    await engine.update_weights(weights(version), version)
    flown.flight.scheduler.check()


def fly(schedule: Schedule, *, task: Task | None = None, engine: Engine | None = None, updates: int = 5,
        ticks: int = 7, **also: Any) -> Flown:  # fmt: skip
    task, engine = task or SpellTask(), engine or tabular()

    async def run() -> Flown:
        flown = new_flight(schedule, task, engine, **also)
        try:
            for version in range(1, updates + 1):
                await step(flown, engine, version, ticks)
        finally:
            await flown.flight.close()
        flown.dropped += flown.flight.dropped()
        return flown

    return asyncio.run(run())


async def moved(flown: Flown, folder: Path, schedule: Schedule, task: Task, engine: Engine, **also: Any) -> Flown:
    """The flight written down and read back by another one, as after a restart."""
    await flown.flight.rest()
    save_flight(flown.flight, folder)
    fresh = new_flight(schedule, task, engine, **also)
    fresh.groups, fresh.trained, fresh.dropped = flown.groups, flown.trained, flown.dropped
    fresh.flight.told = fresh.groups.append
    load_flight(fresh.flight, folder)
    return fresh
