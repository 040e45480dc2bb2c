"""A judge with a list of questions about one entry: how far each is met, read off the likelihood of three words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.engine_judges import likelihoods, prompt_of
from rolltree.generate.judge.protocol import Entry, JudgeError, Opinion, Question, hand_of
from rolltree.generate.random import mix

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Checklist:
    """The mean over the items of Σ credit · P(option), with P normalised over the options (WebOperator, 2512.12692)."""

    items: tuple[str, ...]
    ask: str = "{prompt}{entry}\n{item}? "
    options: tuple[str, ...] = ("yes", "in progress", "no")
    credits: tuple[float, ...] = (1.0, 0.5, 0.0)
    role: str = "judge"
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.items or len(self.options) != len(self.credits):
            raise JudgeError(
                f"a checklist of {len(self.items)} items with {len(self.options)} options and {len(self.credits)} "
                "credits: give an item or more, and a credit for each option"
            )

    @property
    def name(self) -> str:
        """Everything that could change a number."""
        return f"checklist {self.role} {mix(self.ask, *self.items, *self.options, repr(self.credits)):x}"

    def calls(self, size: int) -> int:
        """One an item."""
        return size * len(self.items)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """All entries and items at once."""
        mine = hand_of(hand, self)
        return await asyncio.gather(*(self._of(mine, question) for question in questions))

    async def _of(self, hand: Hand, question: Question) -> Opinion:
        met = await asyncio.gather(*(self._met(hand, entry, item) for entry in question for item in self.items))
        if any(one is None for one in met):
            return None
        table = np.asarray(met, np.float64).reshape(len(question), len(self.items))
        return [float(x) for x in table.mean(axis=1)]

    async def _met(self, hand: Hand, entry: Entry, item: str) -> float | None:
        text = self.ask.format(prompt=prompt_of(hand), entry=entry.text, item=item)
        found = await likelihoods(hand, self.role, text, self.options, [entry], mean=False)
        if found is None:
            return None
        shares = np.exp(found - np.logaddexp.reduce(found))
        return float(shares @ np.asarray(self.credits))
