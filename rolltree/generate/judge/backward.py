"""Backward verification: from the answer alone, is the question to be found again? (ST-Raptor, SlideForge)

The judge must not see the question; the released ST-Raptor shows it to the one that reconstructs it, which inflates the
score. What fits many questions of the same kind scores well whether it is right or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolltree.control.brief import brief
from rolltree.generate.judge.engine_judges import about, likelihoods, prompt_of
from rolltree.generate.judge.protocol import Entry, JudgeError, Opinion, Question, hand_of
from rolltree.generate.random import mix
from rolltree.task.spoken import question_of

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Backward:
    """How well an answer leads back to its question: the likelihood of the prompt after the answer, or, with `n` > 0,
    the mean likeness to it of n questions that a role writes, knowing the answer alone.

    Likeness is the share of common pieces of three characters (Dice), where the paper compares sentence embeddings.
    """

    ask: str = "{text}\n"
    """What is read: the answer stands for {text}. The prompt has no place here."""
    n: int = 0
    stop: tuple[str, ...] = ("\n",)
    max_tokens: int = 64
    role: str = "reader"
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if "{text}" not in self.ask or "{prompt}" in self.ask:
            raise JudgeError(
                f"what leads back from an answer is asked with {self.ask!r}; write {{text}} in it, and never {{prompt}}"
            )

    @property
    def name(self) -> str:
        """Everything that could change a number."""
        return f"backward {self.role} n={self.n} {mix(self.ask, *self.stop, self.max_tokens):x}"

    def calls(self, size: int) -> int:
        """One a question that is written, or read."""
        return size * max(self.n, 1)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """All at once."""
        mine = hand_of(hand, self)
        return await asyncio.gather(*(self._answered(mine, question) for question in questions))

    async def _answered(self, hand: Hand, question: Question) -> Opinion:
        found = await asyncio.gather(*(self._one(hand, entry) for entry in question))
        return None if any(x is None for x in found) else [x for x in found if x is not None]

    async def _one(self, hand: Hand, entry: Entry) -> float | None:
        text, prompt = self.ask.format(text=entry.text), question_of(prompt_of(hand))
        if self.n == 0:
            said = await likelihoods(hand, self.role, text, [prompt], [entry], mean=True)
            return None if said is None else float(np.exp(said[0]))
        written = await hand.ask(
            self.role, brief(text), about=about([entry]), n=self.n, stop=self.stop, max_tokens=self.max_tokens
        )
        return float(np.mean([alike(prompt, one.text) for one in written])) if written else None


def alike(one: str, other: str) -> float:
    """Dice's coefficient of the pieces of three characters of two texts, ends included."""
    a, b = pieces(one), pieces(other)
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0


def pieces(text: str) -> set[str]:
    """Pieces of three characters of a text between two end marks."""
    whole = f"\x02{text.strip()}\x03"
    return {whole[i : i + 3] for i in range(len(whole) - 2)}
