"""Controls by name: `load_control("dars", schedule="hard")`."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, cast

import rolltree.control
import rolltree.control.methods
from rolltree.control.order import ControlError
from rolltree.control.plan import Control
from rolltree.errors import unknown
from rolltree.knobs import checked_knobs


@cache
def controls() -> dict[str, type[Control]]:
    """Every control's class by name."""
    found: dict[str, type[Control]] = {}
    for package in (rolltree.control, rolltree.control.methods):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                name = getattr(value, "name", None)
                if isinstance(value, type) and isinstance(name, str) and is_dataclass(value) and hasattr(value, "plan"):
                    found[name] = cast(type[Control], value)
    return dict(sorted(found.items()))


def load_control(name: str, /, **knobs: Any) -> Control:
    """Make a control by name; an unknown name or knob is refused with the nearest known one."""
    if name not in controls():
        raise unknown("control", name, controls())
    made = controls()[name]
    known = [f.name for f in fields(cast(Any, made)) if f.init]
    for knob in knobs:
        if knob not in known:
            near = get_close_matches(knob, known, 1, cutoff=0.5)
            way = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise ControlError(f"control {name!r} has no knob {knob!r}; {way}")
    return made(**checked_knobs(f"control {name!r}: ", made, knobs))
