"""Which code a result came from: hashes of the modules used, found by following imports without running them.

A hash covers what a module does, not how it is written down: comments, docstrings, blank lines and formatting do not
count, and neither do a recipe's card and the Python version. Registries are not followed (they import everything);
what they would have loaded is found from the objects they made, by `modules_of`.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import rolltree
from rolltree.registry import FOREIGN

ROOT = Path(rolltree.__file__).parent
"""The package; in a checkout the studies lie beside it."""
MACHINERY = "rolltree.generate.hand"
"""Whatever the hand itself rests on is shared by every recipe and is not what tells one from another."""
BASE = "rolltree.recipe.recipe"
"""What a recipe, a card and a composition are, with all that they are written in: changing it changes no method."""
PLAN = "rolltree.control.plan"
"""How rollouts are asked for, and the uniform control: the same for every recipe. Other controls have their modules."""
STAGES = ("generate", "filter", "control", "replay", "credit", "objective", "recipe")
_UNFOLLOWED = ("registry",)


def closure(modules: Iterable[str], follow: Callable[[str], bool] = lambda _: True) -> set[str]:
    """These modules of the package and all they import from it, directly or not, through modules to `follow`."""
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in seen or name.rpartition(".")[2] in _UNFOLLOWED or _file(name) is None:
            continue
        seen.add(name)
        if follow(name):
            waiting.extend(_imports(name))
    return seen


def hashes(modules: Iterable[str]) -> dict[str, str]:
    """A short hash of each module's meaning, by name."""
    return {name: _meaning(name) for name in sorted(set(modules))}


def recipe_sources(recipe: Any, *parts: Any) -> dict[str, str]:
    """Hashes of the modules that make a recipe what it is: itself, its strategy, filters, credit and objective.

    The machinery below the hand, the engines, tasks and the trainer are left out: they are the same for the baseline,
    and a change there is judged by their own tests.
    """
    own = {name for thing in (recipe, *parts) for name in modules_of(thing)}
    used = own | (closure(own) - closure({MACHINERY, BASE}))
    return hashes(name for name in used - {BASE, PLAN} if _is_method(name) and not _is_package(name))


def _is_method(module: str) -> bool:
    """Whether a module is of a stage of rollouts, or an own part from outside the package."""
    first, *rest = module.split(".")
    return first in FOREIGN or rest[:1] in [[stage] for stage in STAGES]


def combined(parts: Mapping[str, str]) -> str:
    """One hash of several."""
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:16]


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Modules that differ between two sets of hashes, appeared or vanished."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def modules_of(thing: Any) -> set[str]:
    """Modules of the package, and of own parts, that an object's class, functions and parts were defined in."""
    found: set[str] = set()
    _collect(thing, found, set())
    return {name for name in found if name.split(".")[0] in {"rolltree", *FOREIGN}}


def _collect(thing: Any, found: set[str], seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, types.FunctionType):
        found.add(thing.__module__)
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
        found.update(base.__module__ for base in thing.__mro__)
        inner = ()
    else:
        found.update(base.__module__ for base in type(thing).__mro__)
        plain = vars(thing).values() if hasattr(thing, "__dict__") else ()
        inner = [getattr(thing, f.name) for f in fields(thing)] if is_dataclass(thing) else list(plain)
    for value in inner:
        _collect(value, found, seen)


def _file(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] in FOREIGN:
        found = getattr(sys.modules.get(module), "__file__", None)
        return Path(found) if found and found.endswith(".py") else None
    return _own_file(module) if parts[0] in ("rolltree", "studies") else None


@cache
def _own_file(module: str) -> Path | None:
    base = ROOT.parent.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _is_package(module: str) -> bool:
    path = _file(module)
    return path is not None and path.name == "__init__.py"


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of the package that this one imports, anywhere in it."""
    path = cast(Path, _file(module))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            source = ".".join(p for p in (base, node.module) if p)
            found.add(source)
            found.update(f"{source}.{alias.name}" for alias in node.names)
    return frozenset(name for name in found if _file(name) is not None)


@cache
def _meaning(module: str) -> str:
    tree = ast.parse(cast(Path, _file(module)).read_text(encoding="utf-8"))
    return hashlib.sha256(repr(_shape(tree)).encode()).hexdigest()[:16]


def _shape(node: Any) -> Any:
    """Syntax as nested tuples: no positions, no docstrings, no empty fields (newer Pythons add some)."""
    if isinstance(node, list):
        return tuple(_shape(x) for x in cast("list[Any]", node))
    if not isinstance(node, ast.AST):
        return repr(node)
    out: list[Any] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        kept = (
            [x for x in cast("list[Any]", value) if not (_is_text(x) or _is_card(x))]
            if name == "body" and isinstance(value, list)
            else value
        )
        if kept is not None and kept != [] and name not in ("type_ignores", "kind"):
            out.append((name, _shape(kept)))
    return tuple(out)


def _is_card(node: Any) -> bool:
    """What a recipe says of itself: evidence compares the question it asks field by field."""
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "card"


def _is_text(node: Any) -> bool:
    """A bare string as a statement: a docstring of something, which does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
