"""Verdicts that were given before: kept by what was read and by which version of which judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question, fitting
from rolltree.tree.store.atomic import naming
from rolltree.tree.store.values import read_json

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Cached:
    """A judge that is not asked twice: the key is its name, its version and the texts in the order they are read.

    For judges of texts alone. A judge that draws says the same again, so give votes a cache each, or none. `file` keeps
    verdicts over runs, a line each; what stayed unanswered is not kept.
    """

    judge: Judge
    version: str = ""
    """Of the judge's weights; the engine's, where it is left out."""
    file: Path | None = None
    known: dict[str, list[float]] = field(default_factory=dict[str, list[float]], compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.is_file():
            for number, line in enumerate(self.file.read_text().splitlines(), 1):
                try:
                    key, values = read_json(line)
                    self.known[str(key)] = [float("nan") if x is None else float(x) for x in values]
                except (ValueError, TypeError):
                    raise JudgeError(f"{self.file}, line {number}, is no verdict; mend the line or remove it") from None

    @property
    def name(self) -> str:
        """The judge's."""
        return self.judge.name

    @property
    def want(self) -> frozenset[str]:
        """The judge's."""
        return self.judge.want

    def calls(self, size: int) -> int:
        """The judge's: what a verdict costs if it is not known."""
        return self.judge.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask about what is not known."""
        version = self.version or ("" if hand is None else str(hand.engine.version))
        keys = [_key(self.name, version, _prompt(hand), question) for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self.known}
        if new:
            said = fitting(self.judge, [*new.values()], await self.judge(hand, [*new.values()], rng))
            made = {key: list(o) for key, o in zip(new, said, strict=True) if o is not None}
            self.known.update(made)
            if self.file is not None and made:
                with naming(self.file), self.file.open("a") as out:
                    for key, values in made.items():
                        out.write(json.dumps([key, [None if np.isnan(x) else x for x in values]]) + "\n")
        return [self.known.get(key) for key in keys]


def _prompt(hand: Hand | None) -> str:
    return "" if hand is None else hand.item.prompt


def _key(name: str, version: str, prompt: str, question: Question) -> str:
    for entry in question:
        if not entry.text:
            raise JudgeError(
                f"the judge {name!r} is cached by what it reads, and an entry has no text; leave it uncached"
            )
    said = repr((name, version, prompt, [entry.text for entry in question]))
    return blake2b(said.encode(), digest_size=16).hexdigest()
