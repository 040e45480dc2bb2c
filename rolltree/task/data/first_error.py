"""A reward that trains a judge to find the first wrong step of an answer (FAPO)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from rolltree.task.data.builtin import Completion, RewardResult
from rolltree.task.data.functions import COLUMNS
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item

STEPS = "steps"
"""The column with the number of steps of the answer that is judged."""
NONE = -1
"""What is said, and what stands as reference, where no step is wrong."""


def located(found: int | None, true: int, steps: int) -> float:
    """What a judge gets for naming a first wrong step, counted from 0; −1 = none is, and None for an invalid answer.

    A right answer: 1 for saying so, else −1. A flawed one: −1 for missing that, else 1 less the share of the steps by
    which it missed the place. Invalid: −1.
    """
    if found is None:
        return -1.0
    if NONE in (true, found):
        return 1.0 if found == true else -1.0
    return 1.0 - abs(found - true) / steps


async def first_error(said: Completion) -> RewardResult:
    """The last whole number of the answer as the first wrong step; a step that the answer does not have is invalid."""
    true, steps = read_row(said.item)
    numbers = re.findall(r"(?<![\w.])-?\d+(?![\w.]*\d)", said.answer)
    found = int(numbers[-1]) if numbers else None
    if found is not None and not NONE <= found < steps:
        found = None
    why = "" if found == true else "no step of the answer was named" if found is None else f"{found} instead of {true}"
    return RewardResult(located(found, true, steps), None if found is None else str(found), why)


def read_row(item: Item) -> tuple[int, int]:
    """The first wrong step of the answer that an item judges, and how many steps it has."""
    return _whole(item, item.answer, "answer"), _steps(item)


def _steps(item: Item) -> int:
    columns = cast("Mapping[str, Any]", item.meta.get(COLUMNS, {}))
    steps = _whole(item, item.meta.get(STEPS, columns.get(STEPS)), STEPS)
    if steps < 1:
        raise TaskError(f"item {item.id!r} judges an answer of {steps} steps; give 1 or more in {STEPS!r}")
    return steps


def _whole(item: Item, value: object, name: str) -> int:
    try:
        return int(str(value).strip())
    except ValueError:
        raise TaskError(
            f"the {name} of item {item.id!r} is {value!r}; the reward first_error takes whole numbers: the first wrong "
            f"step from 0, or {NONE} for none, and in {STEPS!r} how many there are"
        ) from None
