"""A process reward for latents: the task's verdict on the image that the denoiser expects from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.tree import Node


@dataclass(frozen=True, slots=True)
class Expected:
    """One denoiser call (the engine's extra "hidden") and one judge call a state; what has ended has its outcome.

    At high noise such one-step guesses are blurred means of many images, which is why searches that trust them early
    go wrong (DTS, arXiv 2506.20701).
    """

    want: frozenset[str] = frozenset({"hidden"})

    async def __call__(self, hand: Hand, ends: Sequence[Node]) -> Sequence[float]:
        """The expected outcome of each end."""
        return [await self._of(hand, end) for end in ends]

    async def _of(self, hand: Hand, end: Node) -> float:
        if "reward" in end.scores:
            return end.scores["reward"]
        image = hand.channel.decode([np.append(hand.hidden(end), 0.0)])
        ask = partial(hand.task.verify, hand.item, None, image)
        verdict = await hand.judge(ask, about="the expected image", node=end)
        return 0.0 if verdict is None else verdict.score
