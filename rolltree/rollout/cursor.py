"""Where a run stands in its task's endless stream of training items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rolltree.rollout.config import RolloutError
from rolltree.task.protocol import Item, Task


@dataclass(slots=True)
class Cursor:
    """A place in the stream; the stream follows from the seed."""

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

    def _ended(self, after: int) -> RolloutError:
        return RolloutError(
            f"task {self.task.name} ran out of training items after {after}; its items() must go on without end: begin "
            "again with them"
        )

    def rewind(self, taken: int) -> None:
        """Go to a place of the stream."""
        self.taken, self._stream = taken, None
