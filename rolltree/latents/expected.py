"""A process reward for latents: the task's verdict on the image that the denoiser expects from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Opinion, Question, hand_of
from rolltree.tree import Node


@dataclass(frozen=True, slots=True)
class Expected:
    """One denoiser call (the engine's extra "hidden") and one judge call a state; what has ended has its outcome.

    At high noise such one-step guesses are blurred means of many images, which is why searches that trust them early
    go wrong (DTS, arXiv 2506.20701).
    """

    name: str = "expected image"
    want: frozenset[str] = frozenset({"hidden"})

    def calls(self, size: int) -> int:
        """One for each state."""
        return size

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """The expected outcome of each end."""
        here = hand_of(hand, self)
        return [[await self._of(here, entry.node) for entry in question] for question in questions]

    async def _of(self, hand: Hand, end: Node) -> float:
        if "reward" in end.scores:
            return end.scores["reward"]
        image = hand.channel.decode([np.append(hand.hidden(end), 0.0)])
        return (await hand.task.verify(hand.item, None, image)).score
