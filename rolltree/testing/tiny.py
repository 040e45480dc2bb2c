"""Two tiny tasks and an exact policy for them: what the contract tests let a strategy run on.

The policy's conditionals depend on the last tokens through a hash, so that different prefixes really differ; a turn
ends about every fifth token. Nothing here is learnable; it only has to be fast, exact and varied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.random import mix
from rolltree.task.grammar import Grammar, Tag
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Reply, Split, Verdict

CODEC = Letters("abcdefghijklmnopqrstuvwxy!", eos_id=26)
STOP = CODEC.alphabet.index("!")
GRAMMAR = Grammar((Tag("switch", "s", "t", 1), Tag("action", "u", "!")))
"""Spans that a turn may have by chance."""
EMBEDDINGS = np.random.default_rng(0).normal(size=(CODEC.vocab_size, 4)).astype(np.float32)


def policy(prefix: tuple[int, ...]) -> list[float]:
    """Next-token probabilities: "!" 0.18, eos 0.02, and letters by a hash of the last three tokens."""
    key = mix(len(prefix), *prefix[-3:])
    letters = [1 + ((key >> i) & 15) for i in range(25)]
    return [0.8 * w / sum(letters) for w in letters] + [0.18, 0.02]


def tiny_engine(*, shuffle: int | None = None) -> TabularEngine:
    """A fresh exact engine for the tiny tasks."""
    return TabularEngine(policy, CODEC, shuffle=shuffle, embeddings=EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class SpellTask:
    """Write letters, then "!"; right if the first one comes early in the alphabet."""

    name: str = "tiny-spell"
    level: int = 0
    stop: tuple[str, ...] = ("!",)
    max_tokens: int = 16
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Prompts of two letters."""
        return _items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """No environment."""
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """Refused: nothing answers here."""
        raise TaskError(f"{self.name} has no environment to answer; end the rollout after its first turn")

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Exact."""
        early = text[:1] in set(CODEC.alphabet[:12])
        return Verdict(float(early), {"format": float(text.endswith("!"))}, answer=text.rstrip("!"))

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """An early letter and the mark; with `noise` any letter."""
        return rng.choice(CODEC.alphabet[:25] if rng.random() < noise else CODEC.alphabet[:12]) + "!"


@dataclass(frozen=True, slots=True)
class Walk:
    """Walk on a line of nine cells from the middle: a word that starts early in the alphabet goes left, else right."""

    name: str = "tiny-walk"
    level: int = 0
    stop: tuple[str, ...] = ("!",)
    max_tokens: int = 48
    max_turns: int = 6
    grammar: Grammar = GRAMMAR

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """As of `SpellTask`."""
        return _items(split, seed)

    def start(self, item: Item) -> tuple[int, str]:
        """The middle."""
        return 4, "4"

    async def step(self, item: Item, state: int, text: str) -> Reply:
        """One step; done at either end of the line after two or more."""
        here = state + (-1 if text[:1] in set(CODEC.alphabet[:12]) else 1)
        return Reply(CODEC.alphabet[here], here, done=here in (2, 6), reward=-0.01, state_key=str(here))

    async def verify(self, item: Item, state: int, text: str) -> Verdict:
        """Right at the left end."""
        return Verdict(float(state == 2), answer=str(state))

    def act(self, item: Item, state: int, rng: Random, noise: float = 0.0) -> str:
        """To the left; with `noise` anywhere."""
        return rng.choice(CODEC.alphabet[:25] if rng.random() < noise else CODEC.alphabet[:12]) + "!"


def _items(split: Split, seed: int) -> Iterator[Item]:
    i = 0
    while True:
        key = mix(split, seed, i)
        yield Item(f"{split}-{seed}-{i}", CODEC.alphabet[key % 25] + CODEC.alphabet[key // 25 % 25], answer="early")
        i += 1
