"""What a node of a search is worth: the task's verdict where it may be asked, and judges by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.head import load_head
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class VerifiedOr:
    """The task's verdict on what has ended, cut to [0, 1]; what has not ended is worth what `otherwise` says.

    Only honest where the verifier may be asked while one searches: visible tests, an equation that can be checked.
    Against a hidden answer it is an oracle.
    """

    otherwise: Judge = field(default_factory=Confidence)

    @property
    def name(self) -> str:
        """The verifier, and what stands in for it."""
        return f"verified, else {self.otherwise.name}"

    @property
    def want(self) -> frozenset[str]:
        """What `otherwise` reads."""
        return self.otherwise.want

    def calls(self, size: int) -> int:
        """Those of `otherwise`."""
        return self.otherwise.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Verdicts and opinions."""
        opinions = await self.otherwise(hand, questions, rng)
        return [
            None if opinion is None else [
                float(np.clip(e.node.scores["reward"], 0.0, 1.0)) if "reward" in e.node.scores else x
                for e, x in zip(question, opinion, strict=True)
            ]
            for question, opinion in zip(questions, opinions, strict=True)
        ]  # fmt: skip


def judge_of(worth: str) -> Judge:
    """The judge that recipes call so: path, step, least (confidence), verifier, or head:FILE (a trained step head)."""
    if worth in ("path", "step", "least"):
        return Confidence(worth)
    if worth == "verifier":
        return VerifiedOr()
    if worth.startswith("head:"):
        return load_head(worth.removeprefix("head:"))
    raise JudgeError(f"worth={worth!r} is none of path, step, least, verifier and head:FILE")
