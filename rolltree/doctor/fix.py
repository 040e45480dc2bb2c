"""What addresses a finding: names of recipes, knobs and corrections, each of which exists (a test asks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["recipe", "knob", "run", "correction", "part"]


@dataclass(frozen=True, slots=True)
class Fix:
    """A suggested fix: one thing to change, and what that does."""

    kind: Kind
    name: str
    does: str

    def __str__(self) -> str:
        return f"{_SHOWN[self.kind].format(self.name)} ({self.does})"


_SHOWN = {
    "recipe": "recipe {}", "knob": "knob {}", "run": "--{}", "correction": "correction {}", "part": "{}",
}  # fmt: skip


def recipe(name: str, does: str) -> Fix:
    """A recipe that treats the cause."""
    return Fix("recipe", name, does)


def knob(name: str, does: str) -> Fix:
    """A recipe's knob, as "recipe.knob"."""
    return Fix("knob", name, does)


def option(name: str, does: str) -> Fix:
    """An option of `rolltree train`: a field of `TrainConfig`, `Optim` or the command's own."""
    return Fix("run", name, does)


def correction(name: str, does: str) -> Fix:
    """An off-policy correction: `load_objective(..., correction=name)`."""
    return Fix("correction", name, does)


def part(name: str, does: str) -> Fix:
    """A field of a class that compositions are made of, as "module:Class.field"."""
    return Fix("part", name, does)
