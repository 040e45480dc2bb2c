"""Judges of a text's form: which blocks it has, what stands in one of them, how far it is from given texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.backward import alike
from rolltree.generate.judge.engine_judges import prompt_of
from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question, hand_of

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Blocks:
    """1 where a text is these blocks, <name>…</name>, each once, none empty, in this order and nothing else; else 0."""

    names: tuple[str, ...]
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.names:
            raise JudgeError("a judge of blocks knows none; name at least one")

    @property
    def name(self) -> str:
        """The blocks."""
        return f"blocks {' '.join(self.names)}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Read each text."""
        return [[float(self._fits(entry.text)) for entry in question] for question in questions]

    def _fits(self, text: str) -> bool:
        if any(text.count(f"<{name}>") != 1 or text.count(f"</{name}>") != 1 for name in self.names):
            return False
        form = r"\s*".join(rf"<{re.escape(name)}>.*\S.*</{re.escape(name)}>" for name in self.names)
        return re.fullmatch(rf"\s*{form}\s*", text, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Within:
    """What another judge says of one block of each text; of a text without that block it says nothing."""

    block: str
    judge: Judge

    @property
    def name(self) -> str:
        """The block and the judge."""
        return f"within {self.block}: {self.judge.name}"

    @property
    def want(self) -> frozenset[str]:
        """Of the judge."""
        return self.judge.want

    def calls(self, size: int) -> int:
        """Of the judge."""
        return self.judge.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask about blocks; a question with an entry that lacks it is an abstention and is not asked."""
        inner = [[replace(entry, text=inside(entry.text, self.block) or "") for entry in q] for q in questions]
        whole = [i for i, question in enumerate(inner) if all(entry.text for entry in question)]
        said = await self.judge(hand, [inner[i] for i in whole], rng) if whole else ()
        out: list[Opinion] = [[float("nan")] * len(question) for question in questions]
        for i, opinion in zip(whole, said, strict=True):
            out[i] = opinion
        return out


@dataclass(frozen=True, slots=True)
class Unlike:
    """How far a text is from the nearest of given ones: 1 − the share of common pieces of three characters (Dice).

    {prompt} in a given text stands for the item's prompt: an answer that only copies it scores 0.
    """

    texts: tuple[str, ...]
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.texts:
            raise JudgeError("a judge of distance has nothing to measure from; give at least one text")

    @property
    def name(self) -> str:
        """The texts."""
        return f"unlike {self.texts!r}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Measure each text."""
        shown = any("{prompt}" in text for text in self.texts)
        prompt = prompt_of(hand_of(hand, self)) if shown else ""
        texts = [text.replace("{prompt}", prompt) for text in self.texts]
        return [[1 - max(alike(entry.text, text) for text in texts) for entry in q] for q in questions]


def inside(text: str, block: str) -> str | None:
    """What stands between <block> and </block>, without the blanks around it; None where there is no such block."""
    found = re.search(rf"<{re.escape(block)}>(.*?)</{re.escape(block)}>", text, re.DOTALL)
    return None if found is None else found.group(1).strip()
