"""Contract tests that users run on their own strategy, credit, task or engine.

Call the checks from any test, or let pytest do it: `pytest --rolltree-strategy package.module:attribute` (likewise
`--rolltree-engine`, `--rolltree-task`, `--rolltree-credit`). Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolltree.testing.strategy import check_strategy as check_strategy

_HOMES = {"check_strategy": "strategy", "check_engine": "engine", "check_task": "task", "check_credit": "credit"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"rolltree.testing has no {name!r}; it has {', '.join(_HOMES)}")
    return getattr(import_module(f"rolltree.testing.{_HOMES[name]}"), name)
