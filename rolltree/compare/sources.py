"""Which code a result came from: hashes of the definitions used, found by following names without running them.

A fingerprint says what code does, not how it is written down or where it lies: comments, docstrings, formatting,
imports and the module that a definition stands in do not count, and neither do a recipe's card and the Python version.
Registries are not followed; what they would have loaded is found from the objects they made, by `roots`.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, cast

from rolltree.compare.definitions import Definition, at_line, defined, definitions, follows, meaning, uses
from rolltree.compare.trace import LabError
from rolltree.control.plan import Uniform
from rolltree.generate.hand import Hand
from rolltree.recipe.recipe import Recipe
from rolltree.registry import FOREIGN

STAGES = ("generate", "filter", "control", "replay", "credit", "objective", "recipe")
"""Packages whose definitions tell one recipe from another."""
PAPERS = "rolltree_papers"
_BASE = ("Card", "Counter", "Evidence", "Parts", "Peer", "Recipe", "RecipeError", "check_group")
"""What a recipe, a card and a composition are, with all that they are written in: changing it changes no method."""
_PLAN = (
    "Apart", "AsksOwn", "Control", "MOST_PER_ROUND", "Nothing", "Plan", "Step", "Supply", "Uniform", "_Others",
    "one_by_one", "refilled",
)  # fmt: skip
"""How rollouts are asked for, and the uniform control: the same for every recipe. Other controls count."""

_TOOLS = {
    "rolltree.compare.arms": ("Arm", "arms"),
    "studies.lab.claim": ("Measured",),
    "rolltree.compare.curves": ("endpoint",),
    "rolltree.compare.frozen": ("BASELINES", "FrozenRunner", "MANY", "counted"),
    "rolltree.compare.regimes": ("calibrated", "regime"),
    "rolltree.compare.runner": ("Conditions", "Shelf", "Spec"),
    "rolltree.compare.train_runner": ("TrainRunner",),
}
"""What checks are written and run with, wherever it lies: no check's own."""


def reached(
    roots: Iterable[Definition], follow: Callable[[Definition], bool] = lambda _: True
) -> frozenset[Definition]:  # fmt: skip
    """These definitions and all they use, directly or not, through definitions to `follow`."""
    seen: set[Definition] = set()
    waiting = [one for one in roots if follows(one.module)]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            if follow(one):
                waiting.extend(uses(one))
    return frozenset(seen)


def fingerprint(used: Iterable[Definition]) -> dict[str, str]:
    """A short hash of what each definition does, by its name. Different ones of the same name share one hash, and then
    what uses one of them also tells which."""
    chosen = set(used)
    meanings: dict[str, set[str]] = {}
    for one in chosen:
        meanings.setdefault(one.name, set()).add(meaning(one))
    unclear = {name for name, several in meanings.items() if len(several) > 1}
    found: dict[str, set[str]] = {}
    for one in chosen:
        which = sorted(f"{u.name} {meaning(u)}" for u in uses(one) & chosen if u.name in unclear)
        found.setdefault(one.name, set()).add(_hash([meaning(one), *which]) if which else meaning(one))
    return {name: _one(several) for name, several in sorted(found.items())}


def _one(several: set[str]) -> str:
    return next(iter(several)) if len(several) == 1 else _hash(sorted(several))


def recipe_sources(recipe: Any, *parts: Any) -> dict[str, str]:
    """The fingerprint of what makes a recipe what it is: itself, its strategy, filters, credit and objective.

    The machinery below the hand, the engines, tasks and the trainer are left out: they are the same for the baseline,
    and a change there is judged by their own tests.
    """
    own = frozenset[Definition]().union(*(roots(thing) for thing in (recipe, *parts)))
    used = own | (reached(own) - machinery())
    return fingerprint(one for one in used - _shared() if is_method(one))


def check_sources(module: str, name: str) -> dict[str, str]:
    """The fingerprint of a check: its function with what it uses of the studies and of methods.

    What the trainer, the engines or the tasks use is as little the check's own as they are. A check outside our
    packages and those of own parts has no fingerprint.
    """
    if not follows(module):
        return {}

    tools = _tools()

    def counts(one: Definition) -> bool:
        return is_method(one) or (one.module.startswith("studies.") and one not in tools)

    check = defined(module, name)
    if check is None:
        raise LabError(f"the check {module}:{name} cannot be found; write it as module:function")
    return fingerprint(one for one in reached({check}, counts) - machinery() if counts(one))


@cache
def machinery() -> frozenset[Definition]:
    """What the hand and what recipes are written in rest on: shared by all, and not what tells one from another."""
    return reached(roots(Hand) | _there(Recipe.__module__, _BASE))


@cache
def _shared() -> frozenset[Definition]:
    return _there(Recipe.__module__, _BASE) | _there(Uniform.__module__, _PLAN)


@cache
def _tools() -> frozenset[Definition]:
    return frozenset[Definition]().union(*(_there(module, names) for module, names in _TOOLS.items()))


def _there(module: str, names: Iterable[str]) -> frozenset[Definition]:
    """Definitions of a module by name; one that moved away is not left out in silence."""
    asked = {Definition(module, name) for name in names}
    if missing := sorted(one.name for one in asked - definitions(module)):
        raise LabError(
            f"{module} defines no {', '.join(missing)}; name in rolltree.compare.sources where that moved to"
        )
    return frozenset(asked)


def is_method(one: Definition) -> bool:
    """Whether a definition is of a stage of rollouts, of a paper, or an own part from outside the package."""
    first, _, rest = one.module.partition(".")
    return first in FOREIGN or first == PAPERS or (first == "rolltree" and rest.partition(".")[0] in STAGES)


def combined(parts: Mapping[str, str]) -> str:
    """One hash of several."""
    return _hash(sorted(parts.items()))


def _hash(told: object) -> str:
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names that differ between two fingerprints, appeared or vanished."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def roots(thing: Any) -> frozenset[Definition]:
    """The definitions that an object's class, functions and parts come from, in our packages and in own parts."""
    found: set[Definition] = set()
    _collect(thing, found, set())
    return frozenset(one for one in found if follows(one.module))


def _collect(thing: Any, found: set[Definition], seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, types.FunctionType):
        found |= _of_function(thing)
        inner: Iterable[Any] = [cell.cell_contents for cell in thing.__closure__ or ()]
    elif isinstance(thing, partial):
        whole = cast("partial[Any]", thing)
        inner = [whole.func, *whole.args, *whole.keywords.values()]
    elif isinstance(thing, types.MethodType):
        inner = [thing.__func__, thing.__self__]
    elif isinstance(thing, Mapping):
        inner = list(cast("Mapping[Any, Any]", thing).values())
    elif isinstance(thing, tuple | list | set | frozenset):
        inner = list(cast("Iterable[Any]", thing))
    elif isinstance(thing, type):
        found |= _of_class(thing)
        inner = ()
    else:
        found |= _of_class(cast("type[Any]", type(thing)))
        plain = vars(thing).values() if hasattr(thing, "__dict__") else ()
        inner = [getattr(thing, f.name) for f in fields(thing)] if is_dataclass(thing) else list(plain)
    for value in inner:
        _collect(value, found, seen)


def _of_class(cls: type[Any]) -> set[Definition]:
    named = ((base.__module__, _named(base.__module__, base.__qualname__)) for base in cls.__mro__)
    return set[Definition]().union(*(found or definitions(module) for module, found in named))


def _of_function(function: types.FunctionType) -> frozenset[Definition]:
    """Where its code stands: what wraps another function carries that one's name."""
    module = function.__globals__.get("__name__", function.__module__)
    return _named(module, function.__code__.co_qualname) or at_line(module, function.__code__.co_firstlineno)


def _named(module: str, qualified: str) -> frozenset[Definition]:
    one = Definition(module, qualified.partition(".")[0])
    return frozenset({one}) & definitions(module)
