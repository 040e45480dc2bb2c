"""What all hands of one run share."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Engine, Generation, Sampling
from rolltree.errors import RolltreeError
from rolltree.generate.answers import AnswerError
from rolltree.generate.random import Stream
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest
from rolltree.tree.node import FloatArray

if TYPE_CHECKING:
    from rolltree.generate.aside import Aside


# How long to wait and how often to try again before an engine, environment or verifier counts as failed.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits per call. A time limit of None waits for ever; code that blocks the event loop cannot be timed out."""

    tries: int = 2
    """Attempts in all. Environments are functional and requests are seeded, so trying again repeats the same call."""
    wait: float = 0.0
    """Seconds before the second attempt; doubled before each further one."""
    engine_seconds: float | None = None
    step_seconds: float | None = 60.0
    verify_seconds: float | None = 60.0
    judge_seconds: float | None = 300.0
    stop_seconds: float | None = 10.0
    """How long a cancelled rollout waits for the engine to hand over what exists."""
    reply_characters: int = 100_000
    """Characters of an environment's reply that are written down; of a longer one the rest is cut, and said so."""


class Gone(Exception):  # noqa: N818 - not an error of ours: a message that a call stayed failed after all tries
    """A call failed as often as patience allows; `cause` is the last exception and `tries` how often."""

    def __init__(self, what: str, cause: Exception, tries: int) -> None:
        super().__init__(f"{what} failed {tries}x: {error_line(cause)}")
        self.cause = cause
        self.tries = tries


async def attempt(
    what: str,
    call: Callable[[], Awaitable[T]],
    patience: Patience,
    seconds: float | None,
    *,
    on_retry: Callable[[str, int], None],
    final: tuple[type[Exception], ...] = (),
) -> T:
    """Await a call, trying again after an exception or a timeout; Gone when the tries are used up.

    Exceptions in `final` would only repeat themselves and are not tried again.
    """
    tries = 0
    while True:
        tries += 1
        try:
            if seconds is None:
                return await call()
            async with asyncio.timeout(seconds):
                return await call()
        except Exception as error:
            cause = _explained(error, seconds)
            if tries >= patience.tries or isinstance(error, final):
                raise Gone(what, cause, tries) from error
            on_retry(f"{what}: {error_line(cause)}", tries)
        if patience.wait:
            await asyncio.sleep(patience.wait * 2 ** (tries - 1))


def error_line(error: BaseException) -> str:
    """An exception as one line; of several that came together, the first."""
    error = first_of(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def first_of(error: BaseException) -> BaseException:
    """The exception itself, or the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def place_of(error: BaseException) -> str:
    """File, line and function in which an exception was raised; empty where it was raised nowhere, or by a check,
    whose sentence names what it is about."""
    error = first_of(error)
    frames = [] if isinstance(error, AnswerError | TaskError) else traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


def _explained(error: Exception, seconds: float | None) -> Exception:
    if isinstance(error, TimeoutError) and not str(error):
        return TimeoutError(f"no answer within {seconds:g} s" if seconds is not None else "timed out inside")
    return error


class HandError(RolltreeError, ValueError):
    """A hand was asked for something that makes no sense; the message names the node and the way out."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: who writes, who answers, by which clock, from which seed."""

    engine: Engine
    task: Task
    forest: Forest
    rng: Stream
    clock: Callable[[], float]
    """Seconds since the run began; every event carries it."""
    patience: Patience
    sampling: Sampling
    """Defaults of every request."""
    limit: int
    """Most policy tokens on one path."""
    per_prompt: Limits | None = None
    """What each tree may spend."""
    turns: int | None = None
    """Most environment steps of a rollout, where that is less than the task's."""
    peers: Mapping[str, Engine] = field(default_factory=dict[str, Engine])
    """Other policies by the actor they write as; every other actor writes with `engine`."""
    roles: Mapping[str, Engine] = field(default_factory=dict[str, Engine])
    """Other models by the role they speak in, in trees of their own (see `Hand.ask`); they may have other tokens."""
    side_tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    """What is asked in side trees, by tree id; every other tree is of the run's task."""
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    """The item of each tree, by tree id."""
    runs: dict[tuple[str, int], Generation] = field(default_factory=dict[tuple[str, int], Generation])
    """Requests in flight by (tree, node), so that pruning or pausing a node stops what is being written below it."""
    tree_budgets: dict[str, Budget] = field(default_factory=dict[str, Budget])
    """The budget of each tree: the same one in every round."""
    hidden: dict[tuple[str, int], FloatArray] = field(default_factory=dict[tuple[str, int], FloatArray])
    """Last hidden states by (tree, node), where they were asked for; never stored with the tree."""
    asides: dict[str, list[Aside]] = field(default_factory=dict[str, "list[Aside]"])
    """By tree id, what was asked in contexts of their own; see `rolltree.generate.aside`."""
    on_progress: Callable[[], None] | None = None
