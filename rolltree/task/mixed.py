"""A wide mix of difficulty: several levels of one or more nano tasks in one stream (`mixed:arithmetic`).

Each item is drawn by a task and then a level, all equally likely. Its `level` and its environment, the task it comes
from, stand on it, so that a control may ask for instances made to order. Splits are those of the tasks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

from rolltree.errors import unknown
from rolltree.task.items import ENVIRONMENT, SingleTurn, TaskError
from rolltree.task.nano.expert import NanoTask
from rolltree.task.protocol import Item, Split, Verdict, measured


@dataclass(frozen=True)
class MixedTask(SingleTurn):
    """Items of `names`, joined by "+", at levels from the lowest to `level`; only tasks that are answered in one turn
    and end alike can be mixed."""

    names: str
    level: int = 0
    """Highest level drawn; 0 = all there are."""
    inner: Mapping[str, Mapping[int, NanoTask]] = field(init=False, repr=False)
    """The tasks by name and level."""
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", {name: _levels(name, self.level) for name in self.names.split("+")})
        stops = {one.stop for one in self._all()}
        if len(stops) > 1 or any(one.max_turns for one in self._all()):
            raise TaskError(
                f"mixed:{self.names} cannot be one task: all must be answered in one turn and end alike; "
                "mix arithmetic, countdown and records"
            )

    @property
    def name(self) -> str:
        """Name in the registry."""
        return f"mixed:{self.names}"

    @property
    def measures(self) -> frozenset[str]:
        """What all of them measure."""
        return frozenset.intersection(*(measured(one) or frozenset[str]() for one in self._all()))

    @property
    def stop(self) -> tuple[str, ...]:
        """What all of them stop at."""
        return next(self._all()).stop

    @property
    def max_tokens(self) -> int:
        """What the longest answers may take."""
        return max(one.max_tokens for one in self._all())

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """A task, then a level, then its next item."""
        rng = Random(f"{self.name}/{self.level}/{split}/{seed}")
        streams = {(name, level): task.items(split, seed) for name, of in self.inner.items()
                   for level, task in of.items()}  # fmt: skip
        while True:
            name = rng.choice(list(self.inner))
            item = next(streams[name, rng.choice(list(self.inner[name]))])
            yield replace(item, meta={**item.meta, ENVIRONMENT: name})

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """As the item's own task judges."""
        return await self._of(item).verify(item, state, text)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """As the item's own task is played."""
        return self._of(item).act(item, state, rng, noise)

    def _of(self, item: Item) -> NanoTask:
        return self.inner[item.meta[ENVIRONMENT]][item.level]

    def _all(self) -> Iterator[NanoTask]:
        return (task for of in self.inner.values() for task in of.values())


def _levels(name: str, highest: int) -> dict[int, NanoTask]:
    """A nano task at each of its levels."""
    from rolltree.task.registry import NANO

    if name not in NANO:
        raise unknown("nano task", name, NANO, "mixed: takes these only")
    levels = [level for level in NANO[name].levels if not highest or level <= highest]
    if not levels:
        raise TaskError(f"mixed: {name} has levels {NANO[name].levels[0]} and up, none up to {highest}")
    return {level: cast(NanoTask, NANO[name].make(level=level)) for level in levels}
