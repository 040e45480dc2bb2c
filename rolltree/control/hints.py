"""Right answers to training items, for hints: from the item's own record, or from the task's expert."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol, runtime_checkable

from rolltree.control.order import ControlError
from rolltree.task.protocol import Item, Task

SOLUTION = "solution"
"""Key in an item's meta under which a reference solution stands."""


@runtime_checkable
class Expert(Protocol):
    """A task that can answer its own items."""

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """An answer; with noise 0 a right one."""
        ...


def solver(task: Task) -> Callable[[Item], str] | None:
    """What gives a right answer to a training item; None for tasks with an environment, where answers are dialogues."""
    if task.max_turns:
        return None

    def solve(item: Item) -> str:
        known = item.meta.get(SOLUTION)
        if isinstance(known, str):
            return known
        if isinstance(task, Expert):
            # One fixed answer per item, so that a hint can grow by steps.
            return task.act(item, None, Random(item.id), 0.0)
        raise ControlError(
            f"item {item.id!r} of the task {task.name!r} has no {SOLUTION!r} in its meta and the task has no expert; "
            "add one, or choose a control without hints"
        )

    return solve


def beginning(text: str, share: float) -> str:
    """The first round(share · length) characters of a solution."""
    return text[: round(share * len(text))]
