"""What addresses a finding: names of recipes, knobs and corrections, each of which exists (a test asks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["recipe", "knob", "run", "correction", "part"]


@dataclass(frozen=True, slots=True)
class Lever:
    """One thing to turn, and what it does."""

    kind: Kind
    name: str
    does: str

    def __str__(self) -> str:
        return f"{_SHOWN[self.kind].format(self.name)} ({self.does})"


_SHOWN = {
    "recipe": "recipe {}", "knob": "knob {}", "run": "--{}", "correction": "correction {}", "part": "{}",
}  # fmt: skip


def recipe(name: str, does: str) -> Lever:
    """A recipe that treats the cause."""
    return Lever("recipe", name, does)


def knob(name: str, does: str) -> Lever:
    """A recipe's knob, as "recipe.knob"."""
    return Lever("knob", name, does)


def option(name: str, does: str) -> Lever:
    """An option of `rolltree train`: a field of `TrainConfig`, `Optim` or the command's own."""
    return Lever("run", name, does)


def correction(name: str, does: str) -> Lever:
    """An off-policy correction: `load_objective(..., correction=name)`."""
    return Lever("correction", name, does)


def part(name: str, does: str) -> Lever:
    """A field of a class that compositions are made of, as "module:Class.field"."""
    return Lever("part", name, does)
