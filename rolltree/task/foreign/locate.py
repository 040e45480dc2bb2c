"""A class or function by its address: `package.module:Name`, or `path/to/file.py:Name`."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rolltree.task.items import TaskError, digest


def locate(address: str, what: str) -> Any:
    """What stands at an address; `what` names it where it cannot be found."""
    place, colon, name = address.rpartition(":")
    if not colon or not place or not name:
        raise TaskError(f"{what} {address!r} must be written as package.module:Name or path/to/file.py:Name")
    try:
        found: Any = _from_file(Path(place)) if place.endswith(".py") else import_module(place)
    except ImportError as error:
        raise TaskError(f"{what} {address!r} cannot be imported: {error}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise TaskError(f"{what} {address!r}: {place} has no {part!r}")
        found = getattr(found, part)
    return found


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ImportError(f"there is no file {path}")
    whole = path.resolve()
    name = f"rolltree_file_{digest(str(whole))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Known by name while it runs, as dataclasses and pickles expect.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
