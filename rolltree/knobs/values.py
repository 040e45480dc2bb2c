"""Knobs held against their own annotations, so that a value of the wrong kind is refused before work starts.

Python does not look at annotations, and a NaN passes every comparison that would refuse it.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import isclass
from numbers import Integral, Real
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from rolltree.errors import RolltreeError
from rolltree.knobs.varying import is_schedule, settled


class KnobError(RolltreeError):
    """A knob with a value of the wrong kind: names both, and what it takes."""


MOST = 1 << 63
"""What no count, level or seed reaches; whoever begins to count to it does not end."""
_KINDS: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def checked_knobs(
    who: str, make: Callable[..., Any], knobs: Mapping[str, Any], *, varies: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Keywords for a class or function, those it takes as a tuple made one; refuses what its annotations do not allow.

    What is annotated otherwise (protocols, callables, other classes) is not looked at. Where knobs may vary over a run
    (`varies`), the text of a schedule stands for each of its values.
    """
    hints = _hints(make)
    return {
        name: value if varies and is_schedule(value) else _checked(who, name, value, hints.get(name, Any))
        for name, value in knobs.items()
    }


def check_instance(who: str, knobs: Any, shown: Callable[[str], str] = str) -> None:
    """Refuse a dataclass, or one that it holds, with a field that is not of its annotated kind; `shown` says how a
    field is called where the user gave it."""
    hints = _hints(type(knobs))
    for field in fields(knobs):
        value = getattr(knobs, field.name)
        if is_dataclass(value) and not isclass(value):
            # What varies over the run has its values checked step by step; here it stands for the first.
            check_instance(who, settled(value), shown)
        else:
            _checked(who, shown(field.name), value, hints.get(field.name, Any))


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(make, partial):
        make = cast("Callable[..., Any]", make.func)
    try:
        if isclass(make):
            return get_type_hints(make) if is_dataclass(make) else get_type_hints(make.__init__)
        return get_type_hints(make)
    except Exception:  # names that exist for type checkers alone, and whatever else an annotation does
        return {}


def _checked(who: str, name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, list) and tuple in (hint, get_origin(hint)):
        value = tuple(cast("list[Any]", value))
    if not _fits(value, hint):
        shown = "nan" if isinstance(value, float) and math.isnan(value) else repr(value)
        raise KnobError(f"{who}{name}={shown:.200} makes no sense; give {_wanted(hint)}")
    return value


def _fits(value: Any, hint: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is Literal:
        return any(value == one and type(value) is type(one) for one in inner)
    if kind is tuple:
        return isinstance(value, tuple) and _fits_tuple(cast("tuple[Any, ...]", value), inner)
    return _fits_plain(value, hint)


def _fits_tuple(value: tuple[Any, ...], inner: tuple[Any, ...]) -> bool:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(_fits(one, inner[0]) for one in value)
    return len(value) == len(inner) and all(map(_fits, value, inner))


def _fits_plain(value: Any, hint: Any) -> bool:
    if hint in (bool, str) or (isinstance(value, bool) and hint in (int, float)):
        return type(value) is hint or (hint is str and isinstance(value, str))
    if hint is float:
        return isinstance(value, Real) and not math.isnan(value)
    if hint is int:
        return isinstance(value, Integral) and abs(int(value)) < MOST
    return hint is not types.NoneType or value is None


def _wanted(hint: Any) -> str:
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_wanted(one) for one in inner))
    if kind is Literal:
        return " or ".join(map(repr, inner))
    if kind is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return f"a list, each of it {_wanted(inner[0])}"
    if kind is tuple:
        return f"a list of {len(inner)}, " + ", ".join(map(_wanted, inner))
    return "nothing (None)" if hint is types.NoneType else _KINDS.get(hint, getattr(hint, "__name__", str(hint)))
