"""Credits by name, with what each needs checked against a forest before it is computed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, TypeVar

import rolltree.credit
from rolltree.credit.advantage import Credit, CreditError
from rolltree.errors import did_you_mean
from rolltree.knobs import checked_knobs

Family = Literal["group", "baseline", "tree", "step", "hierarchy", "shaping", "pairwise"]
C = TypeVar("C", bound=type[Any])


@dataclass(frozen=True, slots=True)
class CreditEntry:
    """A registered credit: how it is made and where it comes from."""

    name: str
    make: Callable[..., Credit]
    paper: str
    family: Family


_ENTRIES: dict[str, CreditEntry] = {}


def register(name: str, *, paper: str, family: Family) -> Callable[[C], C]:
    """Class decorator: make a credit loadable by name."""

    def add(cls: C) -> C:
        _ENTRIES[name] = CreditEntry(name, cls, paper, family)
        return cls

    return add


@cache
def credits() -> dict[str, CreditEntry]:
    """Every registered credit by name."""
    for module in pkgutil.iter_modules(rolltree.credit.__path__):
        importlib.import_module(f"rolltree.credit.{module.name}")
    return dict(sorted(_ENTRIES.items()))


def load_credit(name: str, /, **knobs: Any) -> Credit:
    """Make a credit by name: `load_credit("gigpo", omega=0.5)`."""
    known = credits()
    if name not in known:
        way = did_you_mean(name, known) or f"known: {', '.join(known)}"
        raise CreditError(f"no credit is called {name!r}; {way}")
    entry = known[name]
    allowed = [f.name for f in fields(entry.make) if f.init]  # pyright: ignore[reportArgumentType]
    for knob in knobs:
        if knob not in allowed:
            way = did_you_mean(knob, allowed) or f"it has {', '.join(allowed) or 'none'}"
            raise CreditError(f"credit {name!r} has no knob {knob!r}; {way}")
    return entry.make(**checked_knobs(f"credit {name!r}: ", entry.make, knobs))


def resolve(base: Credit | str) -> Credit:
    """A credit given as itself or by its name with default knobs."""
    return load_credit(base) if isinstance(base, str) else base
