"""Methods of several roles held against exact numbers: a policy that reads what earlier attempts said, exactly known.

A question is a letter; its answer is that letter, then "!". Without an earlier attempt in sight the policy is right
with `ALONE`; with one, it says what that said where it was right (`FOLLOWS`), and falls back to `ALONE` where all were
wrong. The studies of rtv, sage, tmas and st_raptor run on it. Same seed, same numbers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.generate.waves import Digests, Waves
from rolltree.task.protocol import Item, Split, Verdict
from rolltree.tree import Forest
from studies.questions import Questions

LETTERS = Letters("abcdefgh?!|&")
ASK, END, BAR, NOT = (LETTERS.alphabet.index(c) for c in "?!|&")
ALONE, FOLLOWS = 0.3, 0.9


@dataclass(frozen=True, slots=True)
class Echo(Questions):
    """Say the letter asked for, then "!"."""

    name: str = "echo-letter"

    def asked(self, split: Split, seed: int, number: int) -> tuple[str, str]:
        """Letters in turn."""
        letter = LETTERS.alphabet[(number + seed) % 8]
        return f"{letter}?", letter

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Right or wrong."""
        answer = text.rstrip("!")
        return Verdict(float(answer == item.answer), answer=answer)


def reader(alone: float = ALONE, follows: float = FOLLOWS, *, trusts: bool = False) -> TabularEngine:
    """The policy: earlier attempts stand in front of the question, each a letter and "|", or "&" where it is to be left
    aside. One that `trusts` repeats any attempt it sees, not only a right one.
    """

    def row(prefix: tuple[int, ...]) -> list[float]:
        out = [0.0] * len(LETTERS.alphabet)
        at = len(prefix) - 1 - prefix[::-1].index(ASK)
        if len(prefix) - at - 1 >= 1:
            out[END] = 1.0
            return out
        asked = prefix[at - 1]
        seen = [prefix[i - 1] for i in range(1, at) if prefix[i] == BAR]
        aside = {prefix[i - 1] for i in range(1, at) if prefix[i] == NOT}
        right = follows if asked in seen and not trusts else alone
        for letter in range(8):
            out[letter] = right if letter == asked else (1 - right) / 7
        if trusts and seen:
            out = [(1 - follows) * p + follows * seen.count(i) / len(seen) for i, p in enumerate(out)]
        if aside and len(aside) < 8:
            out = [0.0 if i in aside else p for i, p in enumerate(out)]
            out = [p / sum(out) for p in out]
        return out

    return TabularEngine(row, LETTERS)


class Bare(Digests):
    """An attempt without its end mark."""

    async def of(self, hand: Any, leaves: Any) -> Any:
        """The letter alone."""
        made = await Digests.of(self, hand, leaves)
        return [type(e)(e.tree, e.node, e.text.rstrip("!")) for e in made]


SHOWN = Bare(shown="{digest}|")


def grown(strategy: TreeStrategy, seed: int, items: int = 200, engine: TabularEngine | None = None,
          account: Budget | None = None) -> Forest:  # fmt: skip
    """A forest of echo trees."""
    task, asked = Echo(), islice(Echo().items("train", seed), items)
    return asyncio.run(grow(strategy, engine or reader(), task, asked, seed=seed, budget=account))


def right(forest: Forest) -> float:
    """Share of prompts whose chosen answer is right."""
    main = [tree for tree in forest if "/" not in tree.id]
    return float(np.mean([tree.notes.get("answer") == tree.notes.get("expected") for tree in main]))


def waves(n: int = 16, votes: int = 8, q: float = 0.65, **knobs: Any) -> Waves:
    """Waves with a judge of known accuracy."""
    judge = Votes(MeasuredJudge(accuracy=q), votes, "shuffled")
    return Waves(n, judge=judge, digests=SHOWN, **knobs)
