"""Tasks that ask by themselves, inside of other trainers: the data are the items of the task that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from rolltree.task.foreign.threads import beside
from rolltree.task.protocol import AsksItself, Item, Task, spoken_by


def source(task: Task) -> Task:
    """The task whose items stand in the data."""
    return task.inner if isinstance(task, AsksItself) else task


def bound(task: Task, codec: Any) -> Task:
    """The task for the trainer's policy: one that asks by itself uses its chat template; of others the data have it."""
    return spoken_by(task, codec) if isinstance(task, AsksItself) else task


async def prompted(task: Task, items: Sequence[Item]) -> list[Item]:
    """Items of the data with the prompts that the policy reads; an agent is started once for each to hear it."""
    if not isinstance(task, AsksItself):
        return list(items)
    return await asyncio.gather(*(beside(partial(task.asked, item)) for item in items))
