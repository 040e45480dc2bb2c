"""Exact policies for searches over attempts: one drafts, one mends what it sees. Same seed, same numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Item, Split, Verdict
from rolltree.tree import Forest, Tree
from studies.questions import Questions

LETTERS = Letters("abcdefgh!")
LENGTH, BLOCK = 4, 9
"""Letters of an answer; tokens of a question with its answer and the mark behind it."""


@dataclass(frozen=True, slots=True)
class Copying(Questions):
    """Write the four letters asked for, then "!"; the score is the share of letters that are right."""

    name: str = "copying"
    max_tokens: int = LENGTH + 1

    def asked(self, split: Split, seed: int, number: int) -> tuple[str, str]:
        """A random word."""
        key = mix(split, seed, number)
        word = "".join(LETTERS.alphabet[key >> (3 * i) & 7] for i in range(LENGTH))
        return word, word

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Letter by letter."""
        right = sum(a == b for a, b in zip(text, item.answer, strict=False)) / LENGTH
        return Verdict(right, answer=text.rstrip("!"))


def agent(first: float, keep: float, mend: float) -> TabularEngine:
    """A policy that gets a letter right with `first`; with an attempt in sight it keeps a right letter with `keep` and
    mends a wrong one with `mend`.
    """

    def distribution(prefix: tuple[int, ...]) -> list[float]:
        place = len(prefix) % BLOCK - LENGTH
        row = [0.0] * len(LETTERS.alphabet)
        if not 0 <= place < LENGTH:
            row[-1] = 1.0
            return row
        wanted = prefix[place]
        chance = first
        if len(prefix) > BLOCK:
            chance = keep if prefix[len(prefix) - BLOCK] == wanted else mend
        for letter in range(8):
            row[letter] = chance if letter == wanted else (1 - chance) / 7
        return row

    return TabularEngine(distribution, LETTERS)


def drafter() -> TabularEngine:
    """Good first answers; does not profit from earlier ones."""
    return agent(0.55, 0.55, 0.55)


def mender() -> TabularEngine:
    """Poor first answers; keeps what is right and mends half of what is wrong."""
    return agent(0.25, 0.95, 0.5)


def grown(strategy: TreeStrategy, seed: int, prompts: int, first: Engine, **peers: Engine) -> Forest:
    """A forest of copying trees."""
    task = Copying()
    items = islice(task.items("train", seed), prompts)
    return asyncio.run(grow(strategy, first, task, items, seed=seed, peers=peers))


def solved(forest: Iterable[Tree]) -> float:
    """Share of trees with an attempt that is wholly right."""
    return float(np.mean([any(n.scores.get("reward", 0.0) >= 1 for n in tree) for tree in forest]))
