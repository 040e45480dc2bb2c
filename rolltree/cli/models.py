"""`rolltree models`: which policies can be used by name, and how to get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from rolltree.cli.common import console, emit, grid, parse
from rolltree.errors import RolltreeError
from rolltree.policy.models import MODELS, get_model, home, present

ABOUT = """List the models Rolltree knows by name, or get one. Folders and hub ids work everywhere a name does.

  rolltree models
  rolltree models get smollm2-135m
"""


@dataclass(frozen=True)
class ModelsArguments:
    """List, or get one."""

    what: Annotated[Literal["list", "get"], tyro.conf.Positional] = "list"
    """List the models, or get the one that is named."""
    name: Annotated[str, tyro.conf.Positional] = ""
    """The model to get."""
    json: bool = False
    """Print JSON instead of a table."""


def run(arguments: Sequence[str]) -> int:
    """List or get."""
    asked = parse(ModelsArguments, arguments, "models", ABOUT)
    out = console()
    if asked.what == "get":
        if not asked.name:
            raise RolltreeError(f"which model? rolltree models get NAME; known: {', '.join(MODELS)}")
        place = get_model(asked.name)
        emit({"model": asked.name, "folder": str(place)}) if asked.json else out.print(f"{asked.name} is in {place}")
        return 0
    rows = [
        {"model": e.name, "ready": "yes" if present(e.name) else f"rolltree models get {e.name}", "about": e.about}
        for e in MODELS.values()
    ]
    if asked.json:
        emit(rows)
        return 0
    out.print(grid("Models by name", rows))
    out.print(f"\nDownloads go to {home()} ($ROLLTREE_HOME). A folder or an owner/name id works as well.", style="dim")
    return 0
