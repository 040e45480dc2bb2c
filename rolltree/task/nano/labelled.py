"""Chained sums as a choice of a label: the tree of labels is the tree of steps (`labelled:arithmetic`).

The labels of `16+12-9=` are paths such as `16+12=28,28-9=19`: at each step the right result or one of two near it,
which the next step goes on from. Strategies that choose a label read them in the item's meta; the verifier is the
task's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from rolltree.errors import unknown
from rolltree.task.items import SingleTurn
from rolltree.task.nano.arithmetic import Arithmetic
from rolltree.task.protocol import Item, Split, Verdict

KINDS = ("arithmetic",)
NEAR = (0, 1, 10)
"""What the results of a step that stand to choose are off by."""


def labelled(names: str, level: int = 2) -> LabelledSums:
    """The labelled form of a nano task."""
    if names not in KINDS:
        raise unknown("labelled task", names, KINDS, "labelled: takes these only")
    return LabelledSums(level)


@dataclass(frozen=True)
class LabelledSums(SingleTurn):
    """Arithmetic whose items say in `labels` which answers there are to choose from: steps with commas between."""

    measures: ClassVar[frozenset[str]] = Arithmetic.measures
    level: int = 2
    name: str = field(default="labelled:arithmetic", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 48
    max_turns: int = field(default=0, init=False)

    @property
    def inner(self) -> Arithmetic:
        """The sums themselves."""
        return Arithmetic(self.level)

    def __post_init__(self) -> None:
        _ = self.inner  # a level that it has not is refused here

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Those of arithmetic, with labels."""
        for item in self.inner.items(split, seed):
            labels = tuple(_chains(item.prompt))
            yield Item(item.id, item.prompt, item.answer, item.level, {**item.meta, "labels": labels})

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """As arithmetic does."""
        return await self.inner.verify(item, state, text)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """As arithmetic's expert."""
        return self.inner.act(item, state, rng, noise)


def _chains(prompt: str) -> Iterator[str]:
    """Every chain of steps, those of the right results first."""
    first, *rest = re.findall(r"[-+]?\d+", prompt)

    def on(total: int, terms: list[str]) -> Iterator[list[str]]:
        if not terms:
            yield []
            return
        for off in NEAR:
            result = total + int(terms[0]) + off
            yield from ([f"{total}{terms[0]}={result}", *more] for more in on(result, terms[1:]))

    return (",".join(steps) for steps in on(int(first), rest))
