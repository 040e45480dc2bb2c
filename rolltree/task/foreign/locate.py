"""A class or function by its address: `package.module:Name`, or `path/to/file.py:Name`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rolltree.ownfile import MISSING, OwnFileError, member, own_file, raised
from rolltree.task.items import TaskError


def locate(address: str, what: str) -> Any:
    """What stands at an address; `what` names it where it cannot be found."""
    place, colon, name = address.rpartition(":")
    if not colon or not place or not name:
        raise TaskError(f"{what} {address!r} must be written as package.module:Name or path/to/file.py:Name")
    found: Any = imported(place, f"{what} {address!r}")
    for part in name.split("."):
        try:
            found = member(found, part, place)
        except OwnFileError as error:
            raise TaskError(f"{what} {address!r}: {error}") from error
        if found is MISSING:
            raise TaskError(f"{what} {address!r}: {place} has no {part!r}")
    return found


def imported(place: str, what: str) -> ModuleType:
    """A module by its name, or by its file where that ends in .py; `what` names who asks."""
    try:
        return own_file(Path(place)) if place.endswith(".py") else import_module(place)
    except OwnFileError as error:
        raise TaskError(f"{what} cannot be imported: {error}") from None
    except Exception as error:  # the module may fail in any way
        raise TaskError(f"{what} cannot be imported: {raised(error)}") from error
