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
from rolltree.task.protocol import Item, Task
from rolltree.train.config import TrainError
from rolltree.train.orders import Fulfilment
from rolltree.train.steering import Steering, allocation
from rolltree.train.widths import width_of


@dataclass(slots=True)
class Cursor:
    """Where a run stands in its task's endless stream of training items."""

    task: Task
    seed: int
    taken: int = 0
    _stream: Iterator[Item] | None = None
    _known: dict[int, Item] = field(default_factory=dict[int, Item])
    """Items asked for by their place."""

    def take(self, count: int) -> list[Item]:
        """The next items."""
        if self._stream is None:
            self._stream = islice(self.task.items("train", self.seed), self.taken, None)
        self.taken += count
        items = list(islice(self._stream, count))
        if len(items) < count:
            raise self._ended(self.taken - count + len(items))
        return items

    def at(self, places: Sequence[int]) -> list[Item]:
        """Items at these places of the stream; those asked for last time are kept."""
        missing = {p for p in places if p not in self._known}
        if missing:
            stream = islice(self.task.items("train", self.seed), max(missing) + 1)
            self._known |= {place: item for place, item in enumerate(stream) if place in missing}
            if gone := missing - self._known.keys():
                raise self._ended(min(gone))
        self._known = {p: self._known[p] for p in places}
        return [self._known[p] for p in places]

    def _ended(self, after: int) -> TrainError:
        return TrainError(
            f"task {self.task.name} ran out of training items after {after}; its items() must go on without end: begin "
            "again with them"
        )

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
