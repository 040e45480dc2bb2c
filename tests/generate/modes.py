"""A policy of a few modes, a task that its steps can be wrong in, and a judge that errs: for searches over steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.engine.tabular import Letters
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Entry, Opinion, Question
from rolltree.task.protocol import Item, Verdict
from rolltree.testing.tiny import SpellTask

MODES = Letters("?abcxyz", eos_id=7)


def modes(prefix: tuple[int, ...]) -> list[float]:
    """Three ways to begin (a usual, b, c), one of which is right; five steps follow that show which way it is."""
    done = len(prefix) - 1
    row = np.full(8, 1e-9)
    if done == 0:
        row[1:4] = 0.6, 0.25, 0.15
    elif done < 6:
        row[3 + prefix[1]] = 1.0
    else:
        row[7] = 1.0
    return list(row / row.sum())


TABLE = np.eye(8, dtype=np.float32) + 0.01


class Right(SpellTask):
    """The third way is right."""

    def items(self, split, seed=0):  # type: ignore[no-untyped-def]
        return (Item(f"x{i}", "?", "c") for i in range(10**6))

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        return Verdict(float(text[:1] == "c"), answer=text[:1])


@dataclass(frozen=True)
class Noisy:
    """A process reward that slightly prefers the usual way until the end, where it sees the right one."""

    name: str = "noisy"
    want: frozenset[str] = frozenset()

    def calls(self, size: int) -> int:
        return 1

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        assert hand is not None
        values = self.values(hand, [entry for [entry] in questions])
        return [[value] for value in values]

    def values(self, hand: Hand, ends: Sequence[Entry]) -> Sequence[float]:
        texts = [end.text for end in ends]
        noise = [hand.rng_at(end.node, "noise").uniform() for end in ends]
        late = [float(text[:1] == "c") if len(text) > 4 else 0.35 * (text[:1] == "a") for text in texts]
        return [0.2 + 0.5 * bonus + 0.1 * u for bonus, u in zip(late, noise, strict=True)]
