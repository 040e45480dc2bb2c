"""The round plan: the one way to ask for rollouts over the prompts of a step.

A plan is a generator. It yields orders, is sent what was delivered, and may then order more: further rollouts of some
prompts, another arm, other prompts. When it returns, the step is over. Plain training is a plan of one round; dynamic
sampling (DAPO) is `refilled` around any plan. What must survive a step stands in the control's state, never in a plan.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rolltree.control.history import History
from rolltree.control.order import Delivery, Grades, Order, Prompt
from rolltree.task.protocol import Item
from rolltree.tree.store.values import storable

MOST_PER_ROUND = 4
"""A refill asks for at most this many times the missing prompts, however few of the last ones were kept."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Plans of single prompts that advance by themselves, without waiting for one another.

    When one of them is over, nothing more is asked of its prompts.
    """

    plans: tuple[Plan, ...]


Plan: TypeAlias = Generator[Sequence[Order] | Apart | Grades, Sequence[Delivery], None]


class Supply(Protocol):
    """The training items of a run, without end and in a fixed order. Held-out items are never in it."""

    def take(self, count: int) -> list[Item]:
        """The next ones."""
        ...

    def at(self, places: Sequence[int]) -> list[Item]:
        """Those at these places of the stream, seen before or not."""
        ...

    @property
    def taken(self) -> int:
        """Place of the next one."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What a plan may know and use."""

    number: int
    """From 1."""
    prompts: int
    """How many prompts the step is to train on."""
    width: int
    """How many rollouts of a prompt the recipe's strategy makes by itself."""
    rng: np.random.Generator
    supply: Supply
    history: History
    """What was delivered so far, this step's earlier rounds included; arms apart."""
    solution: Callable[[Item], str] | None = None
    """A right answer to a training item, where the task has one."""
    places: Iterator[int] = field(default_factory=itertools.count)

    def take(self, count: int | None = None) -> list[Prompt]:
        """The next items of the stream (by default as many as the step needs), each in a place of its own."""
        return self.prompts_of(self.supply.take(self.prompts if count is None else count))

    def prompts_of(self, items: Sequence[Item]) -> list[Prompt]:
        """Items in places of their own."""
        return [Prompt(item, next(self.places)) for item in items]


@runtime_checkable
class Control(Protocol):
    """Who gets how many rollouts, in which arms and rounds. Knobs only; what is learned stands in the state."""

    needs: ClassVar[frozenset[str]]
    """What the task must offer: "solution" (a right answer to training items), "one turn" (no environment)."""

    def start(self) -> Any:
        """The state at the beginning of a run: an object that `rolltree.tree.store.values` can store."""
        ...

    def plan(self, step: Step, state: Any) -> Plan:
        """The plan of one step; it may change the state."""
        ...


@runtime_checkable
class AsksOwn(Protocol):
    """A control that also asks questions of its own making, to which nobody has written an answer."""

    asks_own: ClassVar[bool]
    """True."""


@storable
@dataclass(slots=True)
class Nothing:
    """The state of a control that learns nothing."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """The next prompts of the stream, each with the strategy's own number of rollouts: what most recipes do."""

    name: ClassVar[str] = "uniform"
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> Nothing:
        """Nothing to remember."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        yield [Order(prompt, last=True) for prompt in step.take()]


@dataclass(frozen=True, slots=True)
class _Others:
    """A supply whose items at given places leave out those that were asked, unless all of them were."""

    inner: Supply
    asked: Set[str]

    @property
    def taken(self) -> int:
        return self.inner.taken

    def take(self, count: int) -> list[Item]:
        return self.inner.take(count)

    def at(self, places: Sequence[int]) -> list[Item]:
        items = self.inner.at(places)
        return [item for item in items if item.id not in self.asked] or items


def refilled(control: Control, state: Any, step: Step, rounds: int) -> Plan:
    """A control's plan again and again until the step has its prompts or `rounds` are used up.

    Prompts whose groups the recipe's filters drop are replaced by others, as many as the share kept so far makes
    likely to be enough: dynamic sampling (DAPO, arXiv 2503.14476, algorithm 1). A control that chooses from a pool
    chooses among prompts that were not asked in this step, as long as there are any.
    """
    kept: dict[int, bool] = {}
    asked: set[str] = set()
    for _ in range(rounds):
        missing = step.prompts - sum(kept.values())
        if missing <= 0:
            return
        rate = sum(kept.values()) / len(kept) if kept else 1.0
        count = min(math.ceil(missing / max(rate, 1e-9)), MOST_PER_ROUND * missing) if kept else missing
        plan = control.plan(replace(step, prompts=count, supply=_Others(step.supply, asked)), state)
        answer: Sequence[Delivery] | None = None
        told: list[Delivery] = []
        while True:
            try:
                orders = next(plan) if answer is None else plan.send(answer)
            except StopIteration:
                break
            answer = yield orders
            told += (d for d in answer if d.order.for_training)
            kept |= {d.order.prompt.place: d.kept for d in answer if d.order.for_training}
        asked |= {d.order.prompt.uid for d in told}


def one_by_one(plan: Callable[[Prompt], Plan], prompts: Sequence[Prompt]) -> Apart:
    """The same plan for each prompt by itself."""
    return Apart(tuple(plan(p) for p in prompts))
