"""A recipe at a step of the run: its knobs that vary take their values, then it is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, TypeVar

from rolltree.control.registry import load_control
from rolltree.knobs.varying import Told, corners, schedules, settled
from rolltree.recipe.recipe import Card, Parts, Recipe, RecipeError

# Counts of a recipe that no memory holds, refused before anything is made.

COUNTS = (
    "group", "leaves", "width", "rollouts", "n", "nodes", "samples", "stems", "branches", "first", "pool", "votes",
    "ways", "vines",
)  # fmt: skip
"""Knobs that say how many rollouts, or parts of them, there are of one prompt."""
MOST = 100_000
"""Of one prompt. Each takes some kilobytes before its first token."""


def check_counts(recipe: Any) -> None:
    """Refuse a recipe, or the control put into one, with a count that only exhausts memory."""
    for field in fields(recipe):  # noqa: F402
        value = getattr(recipe, field.name)
        told: Mapping[str, Any] = value if isinstance(value, Mapping) else {field.name: value}
        for name, count in told.items():
            if name in COUNTS and isinstance(count, int) and count > MOST:
                raise RecipeError(f"{name}={count} rollouts of one prompt fit no memory; give at most {MOST}")


R = TypeVar("R")


def compose(recipe: Recipe, step: int = 0, told: Told | None = None) -> Parts:
    """The recipe's parts after so many finished steps, given the last one's numbers."""
    made = settled(recipe, step, told)
    check_counts(made)
    return made.build()


def at_start(build: Callable[[R], Parts]) -> Callable[[R], Parts]:
    """For a recipe whose defaults vary: `build` alone gives the parts of the first step."""

    @wraps(build)
    def first(self: R) -> Parts:
        return build(settled(self))

    return first


@dataclass(frozen=True, slots=True)
class Steered:
    """A recipe under another control than its own: the control's name and its knobs."""

    inner: Recipe
    control: str
    knobs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def card(self) -> Card:
        """The recipe's own."""
        return self.inner.card

    def build(self) -> Parts:
        """The recipe's composition with the control replaced."""
        check_counts(self.inner)
        return replace(self.inner.build(), control=load_control(self.control, **self.knobs))


def moving(stages: Iterable[Parts]) -> bool:
    """Whether the reference is replaced on the way."""
    return len({parts.anchor for parts in stages}) > 1


@dataclass(frozen=True, slots=True)
class Course:
    """The parts of a run from its first step to its last."""

    recipe: Recipe | Parts
    texts: dict[str, str] = field(init=False)
    """Every schedule in it, by the knob's dotted name; empty where the parts are the same all along."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", {} if isinstance(self.recipe, Parts) else schedules(self.recipe))

    @property
    def card(self) -> Card | None:
        """The recipe's; None where parts were given."""
        return None if isinstance(self.recipe, Parts) else self.recipe.card

    def at(self, step: int, told: Told) -> Parts:
        """The parts after so many finished steps."""
        return self.recipe if isinstance(self.recipe, Parts) else compose(self.recipe, step, told)

    def corners(self) -> list[Parts]:
        """The parts at every step where something begins or ends: what all of them need is all that is ever needed."""
        return [self.at(step, told) for step, told in corners(self.texts)]
