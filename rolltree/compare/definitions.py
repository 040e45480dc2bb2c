"""The definitions that modules are made of, and which others each uses, found by reading and without running.

A definition is a class, a function or a name that is assigned at the top of a module. Its meaning is its syntax without
docstrings, comments, formatting, imports and a recipe's card. What it uses stands in it under the name of what is
used, however that was imported: a definition that moves to another module means the same.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import rolltree
from rolltree.registry import FOREIGN

ROOT = Path(rolltree.__file__).parent
"""The package; in a checkout the studies lie beside it."""
OURS = ("rolltree", "rolltree_papers", "studies")
"""Packages whose definitions are followed, beside those that own parts came from."""
_UNFOLLOWED = "registry"
_SKIPPED = frozenset({"__all__", "__getattr__", "__dir__"})

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Definition(NamedTuple):
    """Where something is defined, and under which name."""

    module: str
    name: str


class _Imported(NamedTuple):
    """What an import binds a name to: a module, or a name in one."""

    module: str
    name: str = ""


_Bound: TypeAlias = dict[str, "_Imported | None"]
"""Names of a scope; those that an import binds with what it binds them to."""


@dataclass(frozen=True)
class _Module:
    name: str
    imports: Mapping[str, _Imported]
    statements: Mapping[str, tuple[ast.stmt, ...]]
    """The statements that make each name, in order."""

    @cached_property
    def definitions(self) -> frozenset[Definition]:
        return frozenset(Definition(self.name, name) for name in self.statements if name not in _SKIPPED)


@dataclass(frozen=True)
class _Read:
    """A definition that was read."""

    meaning: str
    uses: frozenset[Definition]


def follows(module: str) -> bool:
    """Whether definitions of a module are looked into: those of our packages and of own parts, registries aside."""
    return module.rpartition(".")[2] != _UNFOLLOWED and _file(module) is not None


def meaning(definition: Definition) -> str:
    """A short hash of what a definition does."""
    return _read(definition).meaning


def uses(definition: Definition) -> frozenset[Definition]:
    """The definitions that stand in this one."""
    return _read(definition).uses


def definitions(module: str) -> frozenset[Definition]:
    """All definitions of a module."""
    made = _module(module)
    return frozenset() if made is None else made.definitions


def defined(module: str, name: str) -> Definition | None:
    """Where a name that a module gives is defined: there, or in the module it imports it from."""
    found = _member(module, name)
    return found if isinstance(found, Definition) else None


def at_line(module: str, line: int) -> frozenset[Definition]:
    """The definitions that a line of a module's file belongs to; all of the module's where it is in none."""
    made = _module(module)
    if made is None:
        return frozenset()
    found = frozenset(
        Definition(module, name) for name, parts in made.statements.items() if any(line in _lines(p) for p in parts)
    )
    return found or definitions(module)


def _lines(node: ast.stmt) -> range:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or node.lineno) + 1)


# Modules


def _file(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] in FOREIGN:
        top = getattr(sys.modules.get(parts[0]), "__file__", None)
        if not top or not top.endswith(".py"):
            return None
        below = Path(top).name == "__init__.py"
        return _source(Path(top).parent, tuple(parts[1:])) if below else Path(top) if len(parts) == 1 else None
    return _source(ROOT.parent, tuple(parts)) if parts[0] in OURS else None


@cache
def _source(folder: Path, parts: tuple[str, ...]) -> Path | None:
    base = folder.joinpath(*parts)
    for path in (base / "__init__.py", base.parent / f"{base.name}.py"):
        if path.is_file():
            return path
    return None


def _module(name: str) -> _Module | None:
    path = _file(name)
    return None if path is None else _parsed(name, path)


@cache
def _parsed(name: str, path: Path) -> _Module:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bound = {statement: _bound([statement], package) for statement in tree.body}
    imports = {name: target for names in bound.values() for name, target in names.items() if target is not None}
    runs = {statement: names for statement, names in bound.items() if not _never_runs(statement)}
    own = {name for names in runs.values() for name, target in names.items() if target is None}
    statements: dict[str, list[ast.stmt]] = {}
    for statement, names in runs.items():
        made = [key for key, target in names.items() if target is None]
        if not (names or _is_text(statement)):  # it changes something: `TABLE[key] = value`, `LOG.setLevel(...)`
            made = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in own]
        for key in dict.fromkeys(made):
            statements.setdefault(key, []).append(statement)
    return _Module(name, imports, {key: tuple(value) for key, value in statements.items()})


def _never_runs(node: ast.AST) -> bool:
    """What only type checkers read, or what runs only where the module is the program."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    named = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    return named in ({"TYPE_CHECKING"}, {"__name__"}) or ast.unparse(node.test).endswith(".TYPE_CHECKING")


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, _Imported]:
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: _Imported(
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            for alias in node.names
        }
    parts = package.split(".")
    base = ".".join(parts[: len(parts) + 1 - node.level]) if node.level else ""
    source = ".".join(p for p in (base, node.module) if p)
    return {alias.asname or alias.name: _Imported(source, alias.name) for alias in node.names}


def _member(module: str, name: str) -> Definition | _Imported:
    """What a module's attribute is: a definition of ours, a module, or something of others by its place."""
    made = _module(module)
    if made is None:
        return _Imported(module, name)
    if name in made.statements:
        return Definition(module, name)
    target = made.imports.get(name)
    if target is not None and target != (module, name):  # a package may import its own modules
        return _followed(target)
    if _file(f"{module}.{name}") is not None:
        return _Imported(f"{module}.{name}")
    if "__getattr__" in made.statements:
        value = getattr(import_module(module), name, None)
        home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if isinstance(home, str) and home != module and own:
            return _member(home, own.partition(".")[0])
    return _Imported("", name)


def _followed(target: _Imported) -> Definition | _Imported:
    return _member(target.module, target.name) if target.name else target


# Names in scopes


def _bound(nodes: Iterable[ast.AST], package: str) -> _Bound:
    """Names that statements bind in their own scope, not in the scopes within."""
    found: _Bound = {}
    outer: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= _imported(node, package)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.name, None)
        elif isinstance(node, _COMPREHENSIONS):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    found.setdefault(inner.target.id, None)
        elif not isinstance(node, ast.Lambda):
            for name in _names_bound(node):
                found.setdefault(name, None)
            waiting.extend(ast.iter_child_nodes(node))
    return {name: value for name, value in found.items() if name not in outer}


def _names_bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    return []


def _arguments(of: ast.arguments) -> list[ast.arg]:
    return [*of.posonlyargs, *of.args, *of.kwonlyargs, *(a for a in (of.vararg, of.kwarg) if a is not None)]


@dataclass
class _Reader(ast.NodeVisitor):
    """Finds what each name of a definition stands for, in the scope it stands in."""

    module: _Module
    package: str
    told: dict[int, str] = field(default_factory=dict[int, str])
    """What expressions refer to, by the identity of their node."""
    uses: set[Definition] = field(default_factory=set[Definition])
    _scopes: list[tuple[bool, _Bound]] = field(default_factory=list[tuple[bool, _Bound]])
    """Whether a scope is a class's, and its names: those of a class are seen in its own body alone."""
    _of_types: int = 0

    def visit_Name(self, node: ast.Name) -> None:
        self._refer(node, node.id, [])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = [node]
        base: ast.expr = node.value
        while isinstance(base, ast.Attribute):
            chain.append(base)
            base = base.value
        if isinstance(base, ast.Name):
            self._refer(base, base.id, chain[::-1])
        else:
            self.visit(base)

    def _refer(self, node: ast.expr, name: str, attributes: list[ast.Attribute]) -> None:
        found = self._looked_up(name)
        while isinstance(found, _Imported) and attributes:
            node = part = attributes.pop(0)
            whole = f"{found.module}.{found.name}" if found.name else found.module
            found = _member(whole, part.attr)
        if found is not None:
            self._use(node, found)

    def _use(self, node: ast.expr, found: Definition | _Imported) -> None:
        if isinstance(found, Definition):
            self.told[id(node)] = found.name
            used = {found}
        elif _file(found.module) is not None and not found.name:
            self.told[id(node)] = "module"
            used = definitions(found.module)
        else:
            self.told[id(node)] = f"{found.module}:{found.name}".replace(".", ":").strip(":")
            return
        if not self._of_types:
            self.uses |= used

    def _looked_up(self, name: str) -> Definition | _Imported | None:
        for depth, (of_class, names) in enumerate(reversed(self._scopes)):
            if name in names and not (of_class and depth):
                target = names[name]
                return None if target is None else _followed(target)
        if name in self.module.statements:
            return Definition(self.module.name, name)
        target = self.module.imports.get(name)
        return None if target is None else _followed(target)

    def visit_Import(self, node: ast.Import) -> None:
        self._imports(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._imports(node)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> None:
        """A definition that is an import or something else, as in `try: import x`, uses what is imported."""
        if not self._scopes:
            found = (_followed(target) for target in _imported(node, self.package).values())
            self.uses.update(one for one in found if isinstance(one, Definition))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def _function(self, node: _Function) -> None:
        given = _arguments(node.args)
        self._all([*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)])
        self._types(a.annotation for a in given)
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        if not isinstance(node, ast.Lambda):
            self._all(node.decorator_list)
            self._types([node.returns])
        self._scopes.append((False, {**dict.fromkeys(a.arg for a in given), **_bound(body, self.package)}))
        self._all(_told(body))
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all([*node.decorator_list, *node.bases, *node.keywords])
        self._scopes.append((True, _bound(node.body, self.package)))
        self._all(_told(node.body))
        self._scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._types([node.annotation])
        self._all([node.target, *([node.value] if node.value is not None else [])])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        first, *rest = node.generators
        self.visit(first.iter)
        names = (n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name))
        self._scopes.append((False, dict.fromkeys(names)))
        self._all([first.target, *first.ifs, *rest])
        self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self._scopes.pop()

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def _types(self, annotations: Iterable[ast.expr | None]) -> None:
        """Annotations are read, so that they mean the same wherever they stand, but what they name is not used."""
        self._of_types += 1
        self._all(a for a in annotations if a is not None)
        self._of_types -= 1

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


@cache
def _read(definition: Definition) -> _Read:
    module = _module(definition.module)
    assert module is not None
    path = cast(Path, _file(module.name))
    reader = _Reader(module, module.name if path.name == "__init__.py" else module.name.rpartition(".")[0])
    made = _told(module.statements[definition.name])
    for statement in made:
        reader.visit(statement)
    digest = hashlib.sha256(repr(shape(made, reader.told)).encode()).hexdigest()[:16]
    return _Read(digest, frozenset(d for d in reader.uses if d != definition and follows(d.module)))


# Syntax


def shape(node: Any, told: Mapping[int, str]) -> Any:
    """Syntax as nested tuples: no positions, no docstrings, no empty fields (newer Pythons add some); `told` says what
    expressions refer to."""
    if isinstance(node, list):
        return tuple(shape(x, told) for x in cast("list[Any]", node))
    if not isinstance(node, ast.AST):
        return repr(node)
    if id(node) in told:
        return ("refers to", told[id(node)])
    out: list[Any] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        kept = _told(cast("list[Any]", value)) if isinstance(value, list) else value
        if kept is not None and kept != [] and name not in ("type_ignores", "kind", "ctx"):
            out.append((name, shape(kept, told)))
    return tuple(out)


def _told(statements: Iterable[Any]) -> list[Any]:
    """Statements that do something: not imports, docstrings, cards and what only type checkers read."""
    return [x for x in statements if not (_is_import(x) or _is_text(x) or _is_card(x) or _never_runs(x))]


def _is_import(node: Any) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_card(node: Any) -> bool:
    """What a recipe says of itself: evidence compares the question it asks field by field."""
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "card"


def _is_text(node: Any) -> bool:
    """A bare string as a statement: a docstring of something, which does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
