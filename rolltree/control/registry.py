"""Controls by name: `load_control("dars", schedule="hard")`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, cast

from rolltree.control.plan import Control
from rolltree.knobs.values import checked_knobs
from rolltree.registry import Modules, Registry, check_knobs


def _control(value: Any) -> tuple[str, type[Control]] | None:
    name = getattr(value, "name", None)
    if isinstance(value, type) and isinstance(name, str) and is_dataclass(value) and hasattr(value, "plan"):
        return name, cast(type[Control], value)
    return None


CONTROLS = Registry[type[Control]]("control", "rolltree.controls", Modules(_control, "rolltree.control"), _control)
"""Classes of controls: dataclasses with a name and a plan."""


def controls() -> dict[str, type[Control]]:
    """Every control's class by name."""
    return CONTROLS.all()


def load_control(name: str, /, **knobs: Any) -> Control:
    """Make a control by name; an unknown name or knob is refused with the nearest known one."""
    made = CONTROLS.find(name)
    check_knobs(f"control {name!r}", knobs, [f.name for f in fields(cast(Any, made)) if f.init])
    return made(**checked_knobs(f"control {name!r}: ", made, knobs))
