"""Where what is generated about a recipe lies: beside its paper, or with those of all recipes of the core."""

from __future__ import annotations

from pathlib import Path

from rolltree.compare.definitions import ROOT
from rolltree.recipe.registry import RECIPES

CHECKOUT = ROOT.parent
EVIDENCE = CHECKOUT / "evidence"
"""Where a checkout keeps the evidence of recipes and systems that belong to no paper's folder."""
PAPERS = CHECKOUT / "rolltree_papers"
DOCS = Path("docs/recipes")
"""Pages of recipes that belong to no paper's folder."""


def in_folder(recipe: str, file: str) -> Path | None:
    """The file of a recipe in its paper's folder; None for a recipe without one.

    `evidence.json` is that of the recipe with the folder's name, `evidence-NAME.json` that of another one.
    """
    made = RECIPES.built_in().get(recipe)
    top, _, folder = ("" if made is None else made.__module__).partition(".")
    if top != PAPERS.name:
        return None
    stem, _, ending = file.partition(".")
    return PAPERS / folder / (file if folder == recipe else f"{stem}-{recipe}.{ending}")


def page_of(recipe: str, checkout: Path = CHECKOUT) -> Path:
    """Where the page of a recipe lies: `docs/recipes/NAME.md`, or with its paper."""
    own = in_folder(recipe, "page.md")
    return checkout / (DOCS / f"{recipe}.md" if own is None else own.relative_to(CHECKOUT))


def page_link(recipe: str) -> str:
    """The page of a recipe as a link from a page in a folder of docs/."""
    own = in_folder(recipe, "page.md")
    return f"../recipes/{recipe}.md" if own is None else f"../../{own.relative_to(CHECKOUT).as_posix()}"


def all_in_folders(file: str) -> dict[str, Path]:
    """Such files of all folders that are there, by recipe."""
    stem, _, ending = file.partition(".")
    found = {path.parent.name: path for path in PAPERS.glob(f"*/{file}")}
    return found | {path.stem.removeprefix(f"{stem}-"): path for path in PAPERS.glob(f"*/{stem}-*.{ending}")}
