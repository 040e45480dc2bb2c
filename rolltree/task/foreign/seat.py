"""Where a foreign environment stands after a turn, for whoever goes on from there.

A task is functional and a foreign environment is not. Where it can be copied, a seat keeps it and gives copies away.
Where it cannot, the seat hands the environment itself to the first who asks; everyone else plays the episode again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from threading import Lock
from typing import Any, Literal

Snapshots = Literal["copy", "replay"]
SPARE = 64
"""Environments that wait to be reset; more are closed."""


class Stable:
    """Environments of one kind, built when needed and reset often."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """One that nobody uses; it stands anywhere, so reset it."""
        with suppress(IndexError):
            return self._free.pop()
        return self.make()

    def back(self, env: Any) -> None:
        """Nobody uses this one any more."""
        if len(self._free) < SPARE:
            self._free.append(env)
        elif callable(close := getattr(env, "close", None)):
            # Spelled out: at the program's end, when seats go too, imported names are gone already.
            try:  # noqa: SIM105
                close()
            except Exception:  # it is thrown away either way
                pass


class Seat:
    """One environment at one place. It goes back to its stable when the last state that names it is gone."""

    __slots__ = ("_env", "_lock", "_snapshots", "_stable")

    def __init__(self, env: Any, stable: Stable, snapshots: Snapshots) -> None:
        self._env: Any = env
        self._stable = stable
        self._snapshots = snapshots
        self._lock = Lock()

    def take(self) -> Any:
        """An environment that stands here and is now the caller's; None where it was handed on already."""
        with self._lock:
            if self._snapshots == "copy":
                return deepcopy(self._env)
            env, self._env = self._env, None
            return env

    def __deepcopy__(self, memo: dict[int, Any]) -> Seat:
        # A state is a value; this is how it is reached, not what it is.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # An environment stays in its process: elsewhere the state is reached by playing the episode again.
        return _empty, ()

    def __del__(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            self._stable.back(env)


def _empty() -> None:
    return None


def can_copy(env: Any) -> bool:
    """Whether an environment can be copied: one that holds a socket, a process or a lock cannot."""
    try:
        deepcopy(env)
    except Exception:  # whatever its parts raise
        return False
    return True
