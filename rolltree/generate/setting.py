"""What all hands of one run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Engine, Generation, Sampling
from rolltree.errors import RolltreeError
from rolltree.generate.patience import Patience
from rolltree.generate.random import Stream
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest
from rolltree.tree.node import FloatArray

if TYPE_CHECKING:
    from rolltree.generate.aside import Aside


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
    """By tree id, what was asked in contexts of their own; see `rolltree.generate.join`."""
    on_progress: Callable[[], None] | None = None
