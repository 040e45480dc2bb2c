"""What other people's reward functions answer, as a number or as no outcome at all."""

from __future__ import annotations

from contextlib import suppress
from math import isnan
from typing import Any

from rolltree.task.items import TaskError

SHOWN = 200
"""Characters of an answer that are shown."""


class UnscorableError(TaskError):
    """A reward function gave no number for a rollout: its leaf is failed, never worth 0."""


MOST = 1e12
"""Largest size of a reward. Beyond it the squares in a group's spread swallow what tells its rollouts apart."""


def number(told: Any, who: str, item: str) -> float:
    """A reward as a finite number."""
    if hasattr(told, "item"):
        with suppress(ValueError, RuntimeError):  # an array of several is no number
            told = told.item()  # a scalar of numpy or torch
    said = f"{who} answered {shown(told)} for item {item!r}"
    if not isinstance(told, int | float) or (isinstance(told, float) and isnan(told)):
        raise UnscorableError(f"{said}, not a number; let it return one, as 0.5")
    if abs(told) > MOST:
        raise UnscorableError(f"{said}; let it stay within ±{MOST:g}")
    return float(told)


def shown(told: Any) -> str:
    """An answer as it is shown."""
    said = f"a number of {told.bit_length()} bits" if isinstance(told, int) and told.bit_length() > 256 else repr(told)
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}… ({len(said):,} characters)"
