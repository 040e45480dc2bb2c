"""Checks before the first token: what a method needs against what engine and task offer."""

from __future__ import annotations

from collections.abc import Collection

from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.task.protocol import Task


class NeedsError(RolltreeError, ValueError):
    """A method and a part that do not fit; the message names both and what is missing."""


TASK_NEEDS = frozenset({"turns", "snapshot", "state_key"})
"""Needs that a task meets; all others are the engine's."""


def check_needs(needs: Collection[str], who: str, engine: Engine, task: Task) -> None:
    """Raise NeedsError with one sentence if the engine or the task cannot meet a need of `who`."""
    asked = frozenset(needs)
    lacking = engine.capabilities.lacking(asked - TASK_NEEDS)
    if lacking:
        raise NeedsError(
            f"{who} needs {_listed(lacking)}, which the engine {type(engine).__name__} does not offer "
            f"(it offers {_listed(sorted(engine.capabilities.features))}); choose another engine or another recipe"
        )
    missing = sorted(asked & TASK_NEEDS) if task.max_turns == 0 else []
    if missing:
        raise NeedsError(
            f"{who} needs {_listed(missing)}, but the task {task.name!r} has no environment; choose an interactive task"
        )
    refused = sorted(asked & getattr(task, "lacks", frozenset[str]()))
    if refused:
        raise NeedsError(
            f"{who} needs {_listed(refused)}, which the environments of {task.name!r} do not offer (they cannot be "
            "copied); choose another recipe, or environments that can be copied"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(repr(n) for n in names) if names else "nothing"


def refuse_environment(task: Task) -> None:
    """Refuse a task with an environment, for strategies whose nodes are whole answers."""
    if task.max_turns:
        raise NeedsError(
            f"trees of attempts need a task that is answered in one go, but {task.name!r} has an environment; "
            "choose one without turns, such as 'countdown'"
        )
