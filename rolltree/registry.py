"""Parts by name, in one way for every kind: built in, installed by another package, or from a file of your own.

A name is one of the package's own parts, a part of a paper, an entry point of an installed package, or
`path/to/file.py:name`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from rolltree.errors import RolltreeError, unknown, unknown_knob

# A Python file of the user as a module, loaded once.


class OwnFileError(RolltreeError, ImportError):
    """A file that cannot be loaded."""


def own_file(path: Path) -> ModuleType:
    """The module that a file defines; what fails in it is one sentence with the file's name."""
    if not path.is_file():
        raise OwnFileError(f"there is no file {path}; give the path of a Python file, then a colon and a name")
    whole = path.resolve()
    name = f"rolltree_file_{hashlib.blake2b(str(whole).encode(), digest_size=6).hexdigest()}"
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
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | GeneratorExit):
            raise OwnFileError(f"{path} cannot be imported: {raised(error, str(whole))}") from error
        if isinstance(error, SystemExit):  # else the whole program would end, with the code of the file
            raise OwnFileError(
                f"{path} leaves the program when it is imported (sys.exit); put what it runs below "
                "if __name__ == '__main__'"
            ) from error
        raise
    return module


def member(module: Any, name: str, where: object) -> Any:
    """What a module of somebody's holds under a name; MISSING where it holds nothing of it."""
    try:
        return getattr(module, name, MISSING)
    except (Exception, SystemExit, GeneratorExit) as error:  # a module may have a __getattr__ of its own
        raise OwnFileError(f"{where} does not give {name!r}: {raised(error)}") from error


MISSING = object()
"""Nothing stands under a name."""


def raised(error: BaseException, file: str = "") -> str:
    """An exception in one line, with its place: the last one in a file, or the last one of all."""
    try:
        told = " ".join(str(error).split())
    except Exception:  # an exception of somebody's own class may fail to tell
        told = ""
    if isinstance(error, ImportError | SyntaxError) and told:
        return told  # which says what is missing, or where it is no Python
    said = f"{type(error).__name__}: {told}" if told else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename == file] or [f for f in frames if not f.filename.startswith("<frozen")]
    return f"{said} ({Path(mine[-1].filename).name} line {mine[-1].lineno})" if mine else said


T = TypeVar("T")
Part = Callable[[Any], tuple[str, T] | None]
"""The name of a part and the part that a value is; None where it is none."""

FOREIGN: set[str] = set()
"""Top-level modules outside this package from which parts were taken."""


class Registry(Generic[T]):
    """The parts of one kind."""

    def __init__(
        self, kind: str, group: str, built_in: Callable[[], Mapping[str, T]], part: Part[T], *,
        given: Callable[[str, Any], T | None] | None = None, hint: str = "",
    ) -> None:  # fmt: skip
        self.kind = kind
        self.group = group
        """Of entry points."""
        self._alone = built_in.alone if isinstance(built_in, Modules) else lambda name: None
        self.built_in = cache(built_in)
        """The parts of this package by name."""
        self._part = part
        self._given = given
        """The part that a value named by a file or an entry point is, where `part` does not know the value."""
        self._hint = hint
        """Where the parts are listed."""

    def all(self) -> dict[str, T]:
        """Every part that has a name, those of installed packages included."""
        return dict(sorted({**self.built_in(), **{name: self.find(name) for name in installed(self.group)}}.items()))

    def names(self) -> list[str]:
        """The names of all, without loading those of other packages."""
        return sorted({*self.built_in(), *installed(self.group)})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (in_file(name) or name in self.names())

    def find(self, name: str) -> T:
        """The part of that name; an unknown one is refused with the nearest known."""
        if in_file(name):
            return self._from_file(name)
        point = installed(self.group).get(name)
        if point is not None:
            return self._from_package(point)
        if (part := self._alone(name)) is not None:
            return part
        if name not in self.built_in():
            raise unknown(self.kind, name, self.names(), "; ".join(filter(None, (self._hint, where_papers_are()))))
        return self.built_in()[name]

    def _from_file(self, name: str) -> T:
        path, _, inner = name.rpartition(":")
        module = own_file(Path(path))
        FOREIGN.add(module.__name__)
        known = parts_in(module, self._part)
        if inner in known:
            return known[inner]
        if (value := member(module, inner, path)) is MISSING:
            raise unknown(f"{self.kind} of {path}", inner, known)
        return self._taken(value, inner, name)

    def _from_package(self, point: EntryPoint) -> T:
        owner = point.dist.name if point.dist is not None else point.value
        if point.name in self.built_in():
            raise RolltreeError(
                f"the package {owner} names a {self.kind} {point.name!r}, which Rolltree has too; uninstall it, or let "
                "it choose another name"
            )
        try:
            value = point.load()
        except Exception as error:  # somebody's module may fail in any way
            raise RolltreeError(
                f"the {self.kind} {point.name!r} of the package {owner} cannot be loaded ({raised(error)}); mend or "
                "uninstall it"
            ) from error
        FOREIGN.add(point.module.partition(".")[0])
        return self._taken(value, point.name, f"{point.value} of the package {owner}")

    def _taken(self, value: Any, name: str, where: str) -> T:
        pair = self._part(value)
        if pair is not None:
            return pair[1]
        part = self._given(name, value) if self._given is not None else None
        if part is None:
            raise RolltreeError(f"{where} is no {self.kind}, but {type(value).__name__}; name a {self.kind}")
        return part


class Modules(Generic[T]):
    """The parts in the modules of packages and in the folders of papers, found by importing them.

    A folder of papers is a package that an installed distribution names under the entry points `rolltree.papers`. Each
    package in it is one paper. `file` is the module of a paper that holds parts of this kind; "" is the package itself.
    """

    def __init__(self, part: Part[T], *packages: str, file: str = "") -> None:
        self._part, self._packages, self._file = part, packages, file

    def __call__(self) -> Mapping[str, T]:
        """All of them."""
        found: dict[str, T] = {}
        for package in self._packages:
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
                found |= parts_in(importlib.import_module(f"{package}.{module.name}"), self._part)
        for paper in papers():
            if (module := self._of(paper)) is not None:
                found |= parts_in(module, self._part)
        return dict(sorted(found.items()))

    def alone(self, name: str) -> T | None:
        """The part in the module or paper of its own name, if there is one: no other module is imported for it."""
        if not name.isidentifier():
            return None
        for package in self._packages:
            if find_spec(f"{package}.{name}") is not None:
                return parts_in(importlib.import_module(f"{package}.{name}"), self._part).get(name)
        for folder in paper_folders():
            if find_spec(f"{folder}.{name}") is not None and (module := self._of(f"{folder}.{name}")) is not None:
                return parts_in(module, self._part).get(name)
        return None

    def _of(self, paper: str) -> ModuleType | None:
        """The module of a paper that holds parts of this kind."""
        name = f"{paper}.{self._file}" if self._file else paper
        return importlib.import_module(name) if find_spec(name) is not None else None


def paper_folders() -> list[str]:
    """The packages whose packages are papers, as installed distributions name them."""
    return sorted({point.value for point in installed("rolltree.papers").values()})


def where_papers_are() -> str:
    """A sentence for a program that is installed without papers; empty where some are."""
    return "" if paper_folders() else "the recipes of papers come with: pip install 'rolltree[papers]'"


@cache
def papers() -> list[str]:
    """The package of every paper, by name; a folder with a leading underscore is none (a template)."""
    found: list[str] = []
    for folder in paper_folders():
        try:
            path = importlib.import_module(folder).__path__
        except (ImportError, AttributeError) as error:
            raise RolltreeError(
                f"the folder of papers {folder!r} cannot be imported ({error}); mend or uninstall what names it"
            ) from error
        found += [f"{folder}.{m.name}" for m in pkgutil.iter_modules(path) if m.ispkg and not m.name.startswith("_")]
    return found


def parts_in(module: ModuleType, part: Part[T]) -> dict[str, T]:
    """The parts that a module holds, by name."""
    return dict(pair for value in list(vars(module).values()) if (pair := part(value)) is not None)


def in_file(name: str) -> bool:
    """Whether a name is one of a part in a file."""
    return ".py:" in name


def check_knobs(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a knob that a part does not have, with the nearest it has."""
    names = list(known)
    for knob in given:
        if knob not in names:
            raise unknown_knob(what, knob, names)


@cache
def installed(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; a name that two packages give is refused."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in found and found[point.name].value != point.value:
            raise RolltreeError(
                f"two installed packages give {point.name!r} of {group}: {found[point.name].value} and {point.value}; "
                "uninstall one"
            )
        found[point.name] = point
    return found
