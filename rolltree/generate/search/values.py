"""What a node of a search is worth: the policy's own confidence, the task's verifier, a learned head, a judge.

All are `StepScorer`s: numbers in [0, 1] for the ends of paths, live or finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.stepsearch import Confidence, StepScorer
from rolltree.tree import Node


@dataclass(frozen=True, slots=True)
class Verified:
    """The task's verdict on what has ended; what has not ended is worth what `otherwise` says.

    Only honest where the verifier may be asked while one searches: visible tests, an equation that can be checked.
    Against a hidden answer it is an oracle.
    """

    otherwise: StepScorer = field(default_factory=Confidence)

    @property
    def want(self) -> frozenset[str]:
        """What `otherwise` reads."""
        return self.otherwise.want

    async def __call__(self, hand: Hand, ends: Sequence[Node]) -> Sequence[float]:
        """Rewards, cut to [0, 1], and opinions."""
        opinions = await self.otherwise(hand, ends)
        return [
            float(np.clip(end.scores["reward"], 0.0, 1.0)) if "reward" in end.scores else float(opinion)
            for end, opinion in zip(ends, opinions, strict=True)
        ]


def scorer_of(name: str) -> StepScorer:
    """A scorer by what recipes call it: path, step, least (confidence), or verifier."""
    match name:
        case "path" | "step" | "least":
            return Confidence(name)
        case _:
            return Verified()
