"""Counts of a recipe that no memory holds, refused before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rolltree.recipe.recipe import RecipeError

COUNTS = (
    "group", "leaves", "width", "rollouts", "n", "nodes", "samples", "stems", "branches", "first", "pool", "votes",
    "ways", "vines",
)  # fmt: skip
"""Knobs that say how many rollouts, or parts of them, there are of one prompt."""
MOST = 100_000
"""Of one prompt. Each takes some kilobytes before its first token."""


def check_counts(recipe: Any) -> None:
    """Refuse a recipe, or the control put into one, with a count that only exhausts memory."""
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        told: Mapping[str, Any] = value if isinstance(value, Mapping) else {field.name: value}
        for name, count in told.items():
            if name in COUNTS and isinstance(count, int) and count > MOST:
                raise RecipeError(f"{name}={count} rollouts of one prompt fit no memory; give at most {MOST}")
