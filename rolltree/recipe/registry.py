"""Recipes by name: `load_recipe("grpo", group=8)`."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

import rolltree.recipe as package
from rolltree.errors import did_you_mean, unknown
from rolltree.knobs import checked_knobs
from rolltree.recipe.recipe import Card, Recipe, RecipeError
from rolltree.recipe.swap import SWAPS, Swapped

NOT_RECIPES = frozenset({"recipe", "check", "registry", "swap"})


@cache
def recipes() -> dict[str, type[Recipe]]:
    """Every recipe's class by name: one module each in this package."""
    found: dict[str, type[Recipe]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in NOT_RECIPES:
            continue
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            card = getattr(value, "card", None)
            if isinstance(value, type) and isinstance(card, Card) and is_dataclass(value):
                found[card.name] = cast(type[Recipe], value)
    return dict(sorted(found.items()))


def list_recipes() -> list[Card]:
    """The cards of all recipes, by name."""
    return [recipe.card for recipe in recipes().values()]


def knobs_of(name: str) -> dict[str, Any]:
    """A recipe's knobs with their defaults."""
    return {f.name: f.default for f in fields(_find(name)) if f.init}  # pyright: ignore[reportArgumentType]


def load_recipe(name: str, /, **knobs: Any) -> Recipe:
    """Make a recipe by name; an unknown name or knob is refused with the nearest known one.

    Beside its own knobs every recipe has `use_credit` and `use_objective` (see `rolltree.recipe.swap`).
    """
    made = _find(name)
    known = knobs_of(name)
    for knob in knobs:
        if knob not in known and knob not in SWAPS:
            way = did_you_mean(knob, (*known, *SWAPS)) or f"it has {', '.join(known)}"
            raise RecipeError(f"recipe {name!r} has no knob {knob!r}; {way}")
    plain = {knob: value for knob, value in knobs.items() if knob not in SWAPS}
    own = made(**checked_knobs(f"recipe {name!r}: ", made, plain))
    swaps = {knob: value for knob, value in knobs.items() if knob in SWAPS}
    return cast(Recipe, Swapped(own, **swaps)) if swaps else own


def _find(name: str) -> type[Recipe]:
    known = recipes()
    if name not in known:
        raise unknown("recipe", name, known)
    return known[name]
