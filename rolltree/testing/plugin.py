"""pytest plugin: run the contract tests on your own parts.

`pytest --rolltree-strategy my.module:Strategy` adds one test per contract check; likewise `--rolltree-engine`,
`--rolltree-task` and `--rolltree-credit`, each as `module:attribute`, repeatable. An attribute that is a class or a
factory is called. Without these options the plugin does nothing and imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

KINDS = ("strategy", "engine", "task", "credit")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare one option per kind of part."""
    group = parser.getgroup("rolltree", "Rolltree contract tests")
    for kind in KINDS:
        group.addoption(
            f"--rolltree-{kind}", action="append", default=[], metavar="MODULE:ATTRIBUTE",
            help=f"run the {kind} contract on this {kind} (or on what this class or factory returns)",
        )  # fmt: skip


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the contract tests that were asked for."""
    for kind in KINDS:
        targets: list[str] = config.getoption(f"--rolltree-{kind}") or []
        for target in targets:
            part = load(target, kind)
            for name, check in checks(kind).items():
                item = ContractItem.from_parent(session, name=f"{kind} {target} {name}", check=check, part=part)
                items.append(item)


def checks(kind: str) -> dict[str, Callable[[Any], None]]:
    """The checks of a kind by name: the module's own list, or its one `check_KIND` function."""
    try:
        module = import_module(f"rolltree.testing.{kind}")
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"this installation has no contract for a {kind}: {error}") from None
    listed: dict[str, Callable[[Any], None]] | None = getattr(module, f"{kind.upper()}_CHECKS", None)
    return listed if listed is not None else {f"check_{kind}": getattr(module, f"check_{kind}")}


def load(target: str, kind: str) -> Any:
    """Import `module:attribute`. Engines stay factories (each check builds its own); other factories are called."""
    module, _, attribute = target.partition(":")
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(
            f"--rolltree-{kind} {target!r} cannot be imported ({error}); write it as package.module:attribute, "
            "importable from where pytest runs"
        ) from None
    return found() if kind in ("strategy", "task") and _is_factory(found, kind) else found


def _is_factory(found: Any, kind: str) -> bool:
    is_part = hasattr(found, "grow") or hasattr(found, "grow_tree") if kind == "strategy" else hasattr(found, "verify")
    return isinstance(found, type) or (callable(found) and not is_part)


class ContractItem(pytest.Item):
    """One check on one part."""

    def __init__(self, *, check: Callable[[Any], None], part: Any, **rest: Any) -> None:
        super().__init__(**rest)
        self.check = check
        self.part = part

    def runtest(self) -> None:
        """Run the check."""
        self.check(self.part)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The sentence alone for a broken contract; the traceback for anything else."""
        if excinfo.errisinstance(AssertionError):
            return f"broken contract: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where the test comes from, for the report."""
        return self.path, None, self.name
