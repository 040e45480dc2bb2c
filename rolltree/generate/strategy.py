"""What a strategy is: an async function that grows a forest with a hand.

Two shapes nest. A `TreeStrategy` grows one prompt's tree. A `Strategy` grows the whole forest: it decides which prompts
get how much, in as many rounds as it likes, and usually lets a tree strategy grow each of them (see `rounds`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.patience import error_line
from rolltree.task.protocol import Task
from rolltree.tree import Forest, Tree

GrowTree = Callable[[Tree, Hand], Awaitable[None]]


@runtime_checkable
class Strategy(Protocol):
    """Grows a forest. It may hold state of its own, never an engine, environment or verifier."""

    @property
    def needs(self) -> frozenset[str]:
        """What engine and task must offer: "entropy:full", "top:20", "hidden", "abort", "snapshot", "state_key", …"""
        ...

    async def grow(self, forest: Forest, hand: Hand) -> None:
        """Grow all trees; `hand` is bound to none of them, `hand.on(tree)` is."""
        ...


@runtime_checkable
class TreeStrategy(Protocol):
    """Grows one tree at a time; trees do not know of one another."""

    @property
    def needs(self) -> frozenset[str]:
        """As of `Strategy`."""
        ...

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow one tree, within `hand.budget`: `hand.budget.remaining("leaves")` is how many paths it may start."""
        ...


@runtime_checkable
class ChecksEngine(Protocol):
    """A strategy with knobs that make sense only on some engines: a threshold that the vocabulary puts out of reach."""

    def check(self, engine: Engine, task: Task) -> None:
        """Raise one sentence before the first token if it cannot work here."""
        ...


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A tree strategy as a strategy: every tree by itself, all at once."""

    inner: TreeStrategy

    @property
    def needs(self) -> frozenset[str]:
        """Those of the inner strategy."""
        return self.inner.needs

    async def grow(self, forest: Forest, hand: Hand) -> None:
        """Grow all trees concurrently; one that crashes fails alone."""
        await on_each(forest, hand, self.inner.grow_tree)


def as_strategy(strategy: object) -> Strategy:
    """The forest's view of either shape."""
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, TreeStrategy):
        return OneByOne(strategy)
    raise TypeError(
        f"{type(strategy).__name__} is no strategy: give it `needs` and either `async grow(forest, hand)` or "
        "`async grow_tree(tree, hand)`"
    )


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
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        fail_tree(hand, error.exceptions[0])
        return
    why = (
        f"the strategy crashed: {type(error).__name__}: {error}"
        if not isinstance(error, Exception)
        else error_line(error)
    )
    hand.tree.notes["failed"] = why
    hand.event("fail", None, f"growing this tree crashed: {why}", error=type(error).__name__)
    for leaf in hand.tree.leaves():
        if leaf.status == "open":
            hand.tree.close(leaf, "failed", "error", "growing this tree crashed", at=hand.setting.clock())
