"""The first wrong step of an answer, as its own engine finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.engine_judges import likelihoods, prompt_of
from rolltree.generate.judge.protocol import Entry, JudgeError, Opinion, Question, hand_of

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class FirstError:
    """Grades an answer by the share of its steps before the first one that is unlikely where it stands; 1 = none is.

    A step is unlikely where the mean probability of its tokens, after the prompt and the steps before, is below
    `least`.
    """

    delimiter: str = ","
    least: float = 0.5
    role: str = "judge"
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.delimiter:
            raise JudgeError("the first wrong step is looked for among steps; give the text that ends one")

    @property
    def name(self) -> str:
        """Everything that could change a number."""
        return f"first error {self.role} delimiter={self.delimiter!r} least={self.least:g}"

    def calls(self, size: int) -> int:
        """One an answer."""
        return size

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """All answers at once."""
        mine = hand_of(hand, self)
        found = await asyncio.gather(*(self._of(mine, entry) for question in questions for entry in question))
        shares = iter(found)
        out: list[Opinion] = []
        for question in questions:
            row = [next(shares) for _ in question]
            out.append(None if any(x is None for x in row) else [float(x) for x in row if x is not None])
        return out

    async def _of(self, hand: Hand, entry: Entry) -> float | None:
        steps = steps_of(entry.text, self.delimiter)
        before = prompt_of(hand)
        for i, step in enumerate(steps):
            said = await likelihoods(hand, self.role, before, [step], [entry], mean=True)
            if said is None:
                return None
            if np.exp(said[0]) < self.least:
                return i / len(steps)
            before += step
        return 1.0 if steps else float("nan")


def steps_of(text: str, delimiter: str) -> list[str]:
    """The steps of an answer, each with the delimiter that ends it."""
    parts = text.split(delimiter)
    return [part + delimiter for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
