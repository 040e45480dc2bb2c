"""What a strategy is: an async function that grows the tree of one prompt with a hand.

Which prompts get how much, in how many rounds, is not its business: that is the control's (`rolltree.control.plan`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import ClassVar, Protocol, runtime_checkable

from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.generate.hand import Hand
from rolltree.generate.setting import error_line, first_of, place_of
from rolltree.task.protocol import Item, Task
from rolltree.tree import Node, Tree

# Checks before the first token: what a method needs against what engine and task offer.


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


GrowTree = Callable[[Tree, Hand], Awaitable[None]]


@runtime_checkable
class TreeStrategy(Protocol):
    """Grows one tree at a time; trees do not know of one another.

    It may hold state of its own, never an engine, environment or verifier.
    """

    @property
    def needs(self) -> frozenset[str]:
        """What engine and task must offer: "entropy:full", "top:20", "hidden", "abort", "snapshot", "state_key", …"""
        ...

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow one tree, within `hand.budget`: `hand.budget.remaining("leaves")` is how many paths it may start."""
        ...


@runtime_checkable
class SampleStrategy(TreeStrategy, Protocol):
    """A strategy whose leaves are samples that know nothing of one another, so each can be grown by itself.

    A schedule can then stop any of them, go on with it later and make a failed one again.
    """

    @property
    def samples(self) -> int:
        """How many it grows of a prompt."""
        ...

    async def grow_sample(self, hand: Hand, leaf: Node | None) -> None:
        """Grow one more sample from the prompt, or go on with the one that was stopped at this leaf."""
        ...

    def sampled(self, leaf: Node) -> bool:
        """Whether nothing more is to be done at a leaf that has ended by itself."""
        ...


@runtime_checkable
class WrittenAnswers(Protocol):
    """A strategy that gives answers which others wrote, so it needs questions that somebody has answered."""

    gives_written: ClassVar[bool]
    """True."""


@runtime_checkable
class ChecksEngine(Protocol):
    """A strategy with knobs that make sense only on some engines: a threshold that the vocabulary puts out of reach."""

    def check(self, engine: Engine, task: Task) -> None:
        """Raise one sentence before the first token if it cannot work here."""
        ...


@runtime_checkable
class ChecksItem(Protocol):
    """A strategy that reads something of each item that not every task gives."""

    def check_item(self, item: Item) -> None:
        """Raise one sentence before the first token if an item like this one leaves it nothing to do."""
        ...


def written(strategy: TreeStrategy) -> frozenset[str]:
    """What a strategy says it writes beside outcomes: what credits and shapers of rewards may read."""
    return getattr(strategy, "writes", frozenset[str]())


async def on_each(trees: Iterable[Tree], hand: Hand, grow_tree: GrowTree) -> None:
    """Do something to trees concurrently. An exception fails its tree alone (an event, and `notes["failed"]`)."""

    async def guarded(tree: Tree) -> None:
        mine = hand.on(tree)
        try:
            await grow_tree(tree, mine)
        except Exception as error:
            fail_tree(mine, error)

    async with asyncio.TaskGroup() as group:
        for tree in trees:
            group.create_task(guarded(tree))


def fail_tree(hand: Hand, error: BaseException) -> None:
    """Record that growing this tree crashed; its open leaves are failed, its finished ones stay as they are."""
    why = error_line(error)
    hand.tree.notes["failed"] = why
    name = type(first_of(error)).__name__
    hand.event("fail", None, f"growing this tree crashed: {why}", error=name, place=place_of(error))
    for leaf in hand.tree.leaves():
        # Nobody goes on from those that were being written (paused) or being answered when another crashed.
        if leaf.status in ("open", "paused") or leaf.finish == "tool":
            hand.tree.close(leaf, "failed", "error", "growing this tree crashed", at=hand.setting.clock())
