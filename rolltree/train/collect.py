"""The rollouts of one step: a control's plan fulfilled, filtered, and refilled while filters leave the step short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rolltree.control.hints import solver
from rolltree.control.ledger import Budget
from rolltree.control.plan import Step, refilled
from rolltree.engine.protocol import Engine, Sampling
from rolltree.filter.groups import drop, sift
from rolltree.generate.random import Stream
from rolltree.recipe.recipe import Parts
from rolltree.replay.harvest import Harvest
from rolltree.task.protocol import Item, Task, distinct
from rolltree.train.config import TrainError
from rolltree.train.orders import Fulfilment
from rolltree.train.steering import Steering, allocation
from rolltree.train.widths import width_of

STALE = 1000
"""Draws without a new item after which a task counts as exhausted."""


@dataclass(slots=True)
class Cursor:
    """Where a run stands in its task's endless stream of training items."""

    task: Task
    seed: int
    taken: int = 0
    items: int | None = None
    """Only the first so many distinct items, in a new order every pass; None = all there are."""
    _stream: Iterator[Item] | None = None
    _known: dict[int, Item] = field(default_factory=dict[int, Item])
    """Items asked for by their place."""

    def stream(self) -> Iterator[Item]:
        """The items from the beginning."""
        return self.task.items("train", self.seed) if self.items is None else self._passes(self.items)

    @property
    def size(self) -> int | None:
        """Items of one pass; None where there is no end of them."""
        return distinct(self.task, "train") if self.items is None else self.items

    @property
    def epoch(self) -> float | None:
        """How often all items were taken; None where there is no end of them."""
        return None if not self.size else self.taken / self.size

    def check(self) -> None:
        """Refuse more items than the task says it has."""
        known = distinct(self.task, "train")
        if self.items is not None and known is not None and known < self.items:
            raise self._too_few(known)

    def _too_few(self, known: int) -> TrainError:
        return TrainError(
            f"{self.task.name} gives {known} distinct training items and no more, so items={self.items} cannot be had; "
            "ask for fewer"
        )

    def _passes(self, count: int) -> Iterator[Item]:
        """The first distinct items in their order, then in others, which the seed alone decides."""
        known, stale = dict[str, Item](), 0
        for item in self.task.items("train", self.seed):
            stale = stale + 1 if item.id in known else 0
            if stale == STALE:
                raise self._too_few(len(known))
            known.setdefault(item.id, item)
            if len(known) == count:
                break
        items = list(known.values())
        yield from items
        rng = Stream(self.seed).child("passes").generator()
        while True:
            yield from (items[i] for i in rng.permutation(len(items)))

    def take(self, count: int) -> list[Item]:
        """The next items."""
        if self._stream is None:
            self._stream = islice(self.stream(), self.taken, None)
        self.taken += count
        return list(islice(self._stream, count))

    def at(self, places: Sequence[int]) -> list[Item]:
        """Items at these places of the stream; those asked for last time are kept."""
        missing = {p for p in places if p not in self._known}
        if missing:
            stream = islice(self.stream(), max(missing) + 1)
            self._known |= {place: item for place, item in enumerate(stream) if place in missing}
        self._known = {p: self._known[p] for p in places}
        return [self._known[p] for p in places]

    def rewind(self, taken: int) -> None:
        """Go to a place of the stream."""
        self.taken, self._stream = taken, None


async def collect(
    recipe: Parts, engine: Engine, cursor: Cursor, prompts: int, budget: Budget, *,
    seed: int, limit: int, sampling: Sampling, steering: Steering | None = None, number: int = 1, version: int = -1,
    peers: Mapping[str, Engine] | None = None,
) -> Harvest:  # fmt: skip
    """Follow the control's plan until `prompts` trees passed the recipe's filters or its rounds are used up.

    Trees beyond the number asked for are dropped with that reason, as DAPO does (arXiv 2503.14476, algorithm 1).
    """
    steering = Steering(recipe.control) if steering is None else steering
    work = Fulfilment(recipe, engine, cursor.task, budget, seed, limit, sampling, steering.history, number, peers)
    step = Step(
        number, prompts, width_of(recipe.strategy) or 1, Stream(seed).child("control").generator(), cursor,
        steering.history, solver(cursor.task),
    )  # fmt: skip
    delivered = await work.follow(refilled(steering.control, steering.state, step, recipe.rounds))
    groups = [work.came.groups[place] for place in sorted(work.came.groups)]
    kept, dropped = sift(groups, recipe.filters)
    for tree in kept[prompts:]:
        drop(tree, "the step had enough prompts")
    out = Harvest(
        kept[:prompts], [*dropped, *kept[prompts:], *work.came.measured], work.rounds, version,
        numbers=allocation(delivered, work.came.bands),
    )  # fmt: skip
    for tree in out.kept:
        for shape in recipe.shapers:
            shape(tree, limit)
    return out
