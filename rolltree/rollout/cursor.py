"""Where a run stands in its task's endless stream of training items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rolltree.generate.random import Stream
from rolltree.rollout.config import RolloutError
from rolltree.task.protocol import Item, Task, distinct

STALE = 1000
"""Draws without a new item after which a task counts as exhausted."""


@dataclass(slots=True)
class Cursor:
    """A place in the stream; the stream follows from the seed."""

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
        """Refuse more items than the task says it has, and items that nobody can judge, before work starts."""
        first = next(iter(self.task.items("train", self.seed)), None)
        if first is not None and first.answer is None:
            raise RolloutError(
                f"{self.task.name} has items without an answer ({first.id!r}), and nothing can be learned where nobody "
                "can judge; give answers and a reward, or answer them with rolltree solve"
            )
        known = distinct(self.task, "train")
        if self.items is not None and known is not None and known < self.items:
            raise self._too_few(known)

    def _too_few(self, known: int) -> RolloutError:
        return RolloutError(
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
        items = list(islice(self._stream, count))
        if len(items) < count:
            raise self._ended(self.taken - count + len(items))
        return items

    def at(self, places: Sequence[int]) -> list[Item]:
        """Items at these places of the stream; those asked for last time are kept."""
        missing = {p for p in places if p not in self._known}
        if missing:
            stream = islice(self.stream(), max(missing) + 1)
            self._known |= {place: item for place, item in enumerate(stream) if place in missing}
            if gone := missing - self._known.keys():
                raise self._ended(min(gone))
        self._known = {p: self._known[p] for p in places}
        return [self._known[p] for p in places]

    def _ended(self, after: int) -> RolloutError:
        return RolloutError(
            f"task {self.task.name} ran out of training items after {after}; its items() must go on without end: begin "
            "again with them"
        )

    def rewind(self, taken: int) -> None:
        """Go to a place of the stream."""
        self.taken, self._stream = taken, None
