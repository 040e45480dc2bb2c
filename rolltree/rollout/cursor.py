"""Where a run stands in its task's endless stream of training items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

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
        return list(islice(self._stream, count))

    def at(self, places: Sequence[int]) -> list[Item]:
        """Items at these places of the stream; those asked for last time are kept."""
        missing = {p for p in places if p not in self._known}
        if missing:
            stream = islice(self.task.items("train", self.seed), max(missing) + 1)
            self._known |= {place: item for place, item in enumerate(stream) if place in missing}
        self._known = {p: self._known[p] for p in places}
        return [self._known[p] for p in places]

    def rewind(self, taken: int) -> None:
        """Go to a place of the stream."""
        self.taken, self._stream = taken, None
