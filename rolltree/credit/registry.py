"""Credits by name, with what each needs checked against a forest before it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, cast

from rolltree.credit.advantage import Credit
from rolltree.knobs.values import checked_knobs
from rolltree.registry import Modules, Registry, check_knobs

Family = Literal["group", "baseline", "tree", "step", "hierarchy", "shaping", "pairwise", "own"]
C = TypeVar("C", bound=type[Any])


@dataclass(frozen=True, slots=True)
class CreditEntry:
    """A registered credit: how it is made and where it comes from."""

    name: str
    make: Callable[..., Credit]
    paper: str
    family: Family


_ENTRIES: dict[type[Any], CreditEntry] = {}


def register(name: str, *, paper: str, family: Family) -> Callable[[C], C]:
    """Class decorator: make a credit loadable by name."""

    def add(cls: C) -> C:
        _ENTRIES[cls] = CreditEntry(name, cls, paper, family)
        return cls

    return add


def _credit(value: Any) -> tuple[str, CreditEntry] | None:
    entry = _ENTRIES.get(value) if isinstance(value, type) else None
    return None if entry is None else (entry.name, entry)


def _own(name: str, value: Any) -> CreditEntry | None:
    fits = isinstance(value, type) and is_dataclass(value) and hasattr(value, "needs") and callable(value)
    return CreditEntry(name, cast("Callable[..., Credit]", value), "", "own") if fits else None


CREDITS = Registry[CreditEntry](
    "credit",
    "rolltree.credits",
    Modules(_credit, "rolltree.credit"),
    _credit,
    given=_own,
    hint="rolltree credit lists them",
)
"""Registered credits; from a file or another package any dataclass that is a credit."""


def credits() -> dict[str, CreditEntry]:
    """Every credit by name."""
    return CREDITS.all()


def load_credit(name: str, /, **knobs: Any) -> Credit:
    """Make a credit by name: `load_credit("gigpo", omega=0.5)`."""
    entry = CREDITS.find(name)
    allowed = [f.name for f in fields(entry.make) if f.init]  # pyright: ignore[reportArgumentType]
    check_knobs(f"credit {name!r}", knobs, allowed)
    made = entry.make(**checked_knobs(f"credit {name!r}: ", entry.make, knobs))
    resolve(getattr(made, "base", made))  # a base that nobody knows is refused here
    return made


def resolve(base: Credit | str) -> Credit:
    """A credit given as itself or by its name with default knobs."""
    return load_credit(base) if isinstance(base, str) else base
