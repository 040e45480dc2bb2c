"""What other people's reward functions answer, as a number or as no outcome at all."""

from __future__ import annotations

from math import isfinite
from typing import Any

from rolltree.task.items import TaskError


class UnscorableError(TaskError):
    """A reward function gave no number for a rollout: its leaf is failed, never worth 0."""


def number(told: Any, who: str, item: str) -> float:
    """A reward as a finite number."""
    if hasattr(told, "item"):
        told = told.item()  # a scalar of numpy or torch
    if not isinstance(told, int | float) or not isfinite(told):
        raise UnscorableError(f"{who} answered {told!r} for item {item!r}, not a number; let it return one, as 0.5")
    return float(told)
