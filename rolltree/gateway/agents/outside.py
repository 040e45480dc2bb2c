"""What an agent in this process reads from outside, recorded so that a replay reads the same again.

A fork starts the agent again and answers it from the record. What it reads besides the policy's answers (the time,
random numbers, answers of tools) must be the same too, up to the fork, and new from there on.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from rolltree.task.items import TaskError


class OutsideReading(NamedTuple):
    """One thing read: what it was, and the value or the exception it gave."""

    what: str
    value: Any = None
    error: Exception | None = None

    def give(self) -> Any:
        """The value, or the exception once more. A copy: what the agent does to it is its own business."""
        if self.error is not None:
            raise self.error
        return deepcopy(self.value)


Record = tuple[OutsideReading, ...]


@dataclass(repr=False)
class Outside:
    """The world as an agent reads it: from the record as far as that goes, then anew.

    An agent finds it under `outside` in what it is given: `outside.now()` for the time, `outside.random` for random
    numbers, `outside.call(tool, …)` for whatever else may answer differently a second time.
    """

    past: Record = ()
    """What was read before, in order."""
    read: list[OutsideReading] = field(default_factory=list[OutsideReading], init=False)
    random: Random = field(init=False)
    """Random numbers, from a seed that is recorded."""

    def __post_init__(self) -> None:
        self.random = Random(self._first("the seed", lambda: Random().getrandbits(64)))

    def now(self) -> float:
        """Seconds since the epoch, as `time.time` has them."""
        return self._first("the time", time.time)

    def call(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What a function returns or raises; to be awaited where the function is to be."""
        what = f"{getattr(function, '__name__', 'a function')}{_shown(given, named)}"
        if inspect.iscoroutinefunction(function):
            return self._awaited(what, lambda: function(*given, **named))
        return self._first(what, lambda: function(*given, **named))

    @property
    def record(self) -> Record:
        """All that was read so far."""
        return tuple(self.read)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _first(self, what: str, fresh: Callable[[], Any]) -> Any:
        known = self._known(what)
        if known is None:
            try:
                known = OutsideReading(what, deepcopy(fresh()))
            except Exception as error:
                known = OutsideReading(what, None, error)
        self.read.append(known)
        return known.give()

    async def _awaited(self, what: str, fresh: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        known = self._known(what)
        if known is None:
            try:
                known = OutsideReading(what, deepcopy(await fresh()))
            except Exception as error:
                known = OutsideReading(what, None, error)
        self.read.append(known)
        return known.give()

    def _known(self, what: str) -> OutsideReading | None:
        """What the record has here; something else in its place means that the agent is not reproducible."""
        if len(self.read) >= len(self.past):
            return None
        known = self.past[len(self.read)]
        if known.what != what:
            raise TaskError(
                f"on replay the agent reads {what} where it read {known.what} before (reading {len(self.read) + 1}); "
                "an agent must do the same again when it hears the same"
            )
        return known


def _shown(given: tuple[Any, ...], named: dict[str, Any]) -> str:
    words = [f"{one!r:.80}" for one in given] + [f"{name}={one!r:.80}" for name, one in named.items()]
    return f"({', '.join(words)})"
