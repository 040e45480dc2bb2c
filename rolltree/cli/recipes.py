"""`rolltree recipes`: the published methods that can be run."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

import tyro
from rich.markdown import Markdown
from rich.text import Text

from rolltree.cli.common import console, emit, grid, parse
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.registry import where_papers_are

ABOUT = """List the recipes, or describe one: its paper, its claim, its knobs and the parts it is made of.

  rolltree recipes
  rolltree recipes dapo
"""


@dataclass(frozen=True)
class RecipesArguments:
    """Which recipe to describe."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """A recipe's name; without one, all are listed."""
    json: bool = False
    """Print JSON instead of tables."""


def run(arguments: Sequence[str]) -> int:
    """List or describe."""
    asked = parse(RecipesArguments, arguments, "recipes", ABOUT)
    return _describe(asked.name, asked.json) if asked.name else _list(asked.json)


def _list(as_json: bool) -> int:
    cards = list_recipes()
    if as_json:
        emit([asdict(card) for card in cards])
        return 0
    rows = [
        {"recipe": c.name, "stages": ", ".join(c.stages), "year": str(c.year), "paper": c.paper, "method": c.title}
        for c in cards
    ]
    out = console()
    out.print(grid("Recipes", rows))
    out.print("\nrolltree recipes NAME describes one; rolltree train NAME --help shows all knobs.", style="dim")
    if missing := where_papers_are():
        out.print(f"{missing[0].upper()}{missing[1:]}", markup=False, highlight=False)
    return 0


def _describe(name: str, as_json: bool) -> int:
    recipe: Any = load_recipe(name)
    card, parts = recipe.card, compose(recipe)
    made_of = {f.name: getattr(parts, f.name) for f in fields(parts) if f.name != "name"}
    if as_json:
        emit({"card": asdict(card), "knobs": asdict(recipe), "parts": {k: repr(v) for k, v in made_of.items()}})
        return 0
    out = console()
    out.print(Text.assemble((card.name, "bold"), f"  {card.title} ({card.year}, {card.paper})"))
    out.print(Markdown(inspect.getdoc(type(recipe)) or ""))
    out.print(f"\nclaim: {card.claim}", highlight=False)
    out.print()
    out.print(grid("Knobs", [{"knob": k, "default": str(v)} for k, v in asdict(recipe).items()]))
    out.print()
    out.print(grid("Made of", [{"part": k, "is": repr(v)} for k, v in made_of.items() if v not in ((), None, {})]))
    return 0
