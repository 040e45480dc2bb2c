"""What the studies of papers give to pages over many: found by name, and left out where a paper is not installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from rolltree.recipe.registry import RECIPES
from rolltree.registry import papers


def installed(recipe: str) -> bool:
    """Whether a recipe is one of the package or of a paper that is there."""
    return recipe in RECIPES.names()


def studies_with(name: str) -> list[ModuleType]:
    """The study of each paper that gives something under this name, by paper."""
    own = [import_module(f"{paper}.study") for paper in papers() if find_spec(f"{paper}.study") is not None]
    return [study for study in own if hasattr(study, name)]
