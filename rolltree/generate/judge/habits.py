"""Judges of habits that rewards breed: saying the same again, doubting without end, drawing what nobody asked for.

All say 1 where there is nothing to blame, so that their weighted sum is a reward like any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.protocol import Entry, Opinion, Question, hand_of
from rolltree.generate.judge.routed import field_of

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Fresh:
    """1 − the share of runs of `words` words that stood in the text before; shorter texts are fresh."""

    words: int = 4
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """How long a run is."""
        return f"fresh words={self.words}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Count runs."""
        return [[self._of(entry.text.split()) for entry in question] for question in questions]

    def _of(self, said: Sequence[str]) -> float:
        runs = [tuple(said[i : i + self.words]) for i in range(len(said) - self.words + 1)]
        return len(set(runs)) / len(runs) if runs else 1.0


@dataclass(frozen=True, slots=True)
class Sparing:
    """1 for up to `free` of some words in a text, `free / n` for more (0 of them free: 1 without any, else 0).

    With `allowed`, an item whose field of that name is true may have as many as it likes.
    """

    said: tuple[str, ...]
    """Words, or parts of words, in any case."""
    free: int = 0
    allowed: str = ""
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The words and how many are free."""
        return f"sparing {self.said} free={self.free} allowed={self.allowed!r}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Count words."""
        free = bool(self.allowed) and bool(field_of(hand_of(hand, self).item, self.allowed))
        return [[1.0 if free else self._of(entry.text) for entry in question] for question in questions]

    def _of(self, text: str) -> float:
        count = sum(len(re.findall(re.escape(word), text, re.IGNORECASE)) for word in self.said)
        return 1.0 if count <= self.free else self.free / count


@dataclass(frozen=True, slots=True)
class StepsTaken:
    """What the steps of a rollout earned: each call that worked, that only repeated one before, or that failed.

    The sum is kept within ±`most`, so that a long rollout is not worth more than a right one.
    """

    worked: float = 0.1
    repeated: float = -0.1
    failed: float = -0.2
    most: float = 0.5
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What steps are worth."""
        return f"steps {self.worked:g} {self.repeated:g} {self.failed:g} most={self.most:g}"

    def calls(self, size: int) -> int:
        """None: what the environment said is recorded."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Read every step of each path."""
        return [[self._of(entry) for entry in question] for question in questions]

    def _of(self, entry: Entry) -> float:
        seen, said, earned = Counter[bytes](), b"", 0.0
        for node in entry.tree.path(entry.node):
            if node.role == "policy":
                said += node.actions.tobytes()
            elif node.role == "env":
                again = seen[said] > 0
                earned += self.failed if node.notes.get("failed") else self.repeated if again else self.worked
                seen[said] += 1
                said = b""
        return float(np.clip(earned, -self.most, self.most))
