"""Methods of several roles held against exact numbers: a policy that reads what earlier attempts said, exactly known.

A question is a letter; its answer is that letter, then "!". Without an earlier attempt in sight the policy is right
with `ALONE`; with one, it says what that said where it was right (`FOLLOWS`), and falls back to `ALONE` where all were
wrong. `rolltree evidence rtv`, `sage`, `tmas` and `st_raptor` run these. Same seed, same numbers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import islice
from math import comb
from typing import Any

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence, MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.generate.waves import Digests, Waves
from rolltree.metrics.reward import waves as waves_of
from rolltree.metrics.rollouts import Rollouts
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Split, Verdict
from rolltree.tree import Forest, Tree
from rolltree.tree.table import table
from rolltree_papers.st_raptor import BestJudged
from rolltree_papers.tmas import EXPERIENCE, GUIDELINES, Banked, RecordWriter
from studies.lab.claim import Measured as Found
from studies.questions import Questions

LETTERS = Letters("abcdefgh?!|&")
ASK, END, BAR, NOT = (LETTERS.alphabet.index(c) for c in "?!|&")
ALONE, FOLLOWS = 0.3, 0.9
BANKS = (EXPERIENCE, GUIDELINES)


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


def majority(q: float, votes: int) -> float:
    """Chance that a majority of votes of accuracy q is right; a coin on ties."""
    return sum(
        comb(votes, k) * q**k * (1 - q) ** (votes - k) * (1.0 if 2 * k > votes else 0.5 if 2 * k == votes else 0.0)
        for k in range(votes + 1)
    )


def winner_right(p: float, q: float, votes: int, rounds: int) -> float:
    """Chance that the winner of 2^rounds attempts is right: p' = p² + 2p(1 − p)·Q(q, V), round by round."""
    for _ in range(rounds):
        p = p**2 + 2 * p * (1 - p) * majority(q, votes)
    return p


def waves(n: int = 16, votes: int = 8, q: float = 0.65, **knobs: Any) -> Waves:
    """Waves with a judge of known accuracy."""
    judge = Votes(MeasuredJudge(accuracy=q), votes, "shuffled")
    return Waves(n, judge=judge, digests=SHOWN, **knobs)


def _published(recipe: str, **knobs: Any) -> Waves:
    """A recipe's own waves, with digests that letters can write."""
    strategy = load_recipe(recipe, **knobs).build().strategy
    assert isinstance(strategy, Waves)
    return replace(strategy, digests=SHOWN)


def rtv(seed: int) -> Found:
    """Two waves of 16 with tournaments between against one tournament of 32 (232 and 248 votes of accuracy .65).

    The policy trusts what it is shown, so a wrong winner of the first wave misleads the second.
    """
    ours, account = _published("rtv", judge="measured"), Budget()
    flat = replace(ours, n=2 * ours.n, waves=1)
    forest = grown(ours, seed, items=200, engine=reader(trusts=True), account=account)
    one = grown(flat, seed, items=200, engine=reader(trusts=True))
    return Found(right(forest), right(one), acted=counted("rtv", forest, account))


def sage(seed: int) -> Found:
    """Second attempts with the first in sight against the more confident of two; exact: p·f + (1 − p)·p, 1 − (1 − p)².

    Reading an attempt and choosing between two both tell right from wrong here, so what is compared is what a second
    attempt makes of it.
    """
    account = Budget()
    forest = grown(_published("sage"), seed, items=400, account=account)
    two = grown(BestJudged(2, Confidence()), seed, items=400)
    return Found(right(forest), right(two), acted=counted("sage", forest, account))


def regressed(follows: float, seed: int, items: int = 400) -> dict[str, float]:
    """P(second wrong | first right) and P(second right | first wrong); exact: 1 − `follows`, and `ALONE`."""
    strategy = Waves(1, keep=1, judge=Confidence(), digests=SHOWN)
    forest = grown(strategy, seed, items, reader(follows=follows))
    return waves_of(Rollouts(table([tree for tree in forest if "/" not in tree.id])))


def banked(noise: float, *, hide: tuple[str, ...] = (), epsilon: float = 0.2, n: int = 4, rounds: int = 4) -> Banked:
    """TMAS on letters, with a judge of known errors; a letter is its own record."""
    judge = Votes(MeasuredJudge(noise=noise), 8, "given", "mean")
    return Banked(n, rounds, epsilon, judge, 0.5, Letter(EXPERIENCE, shown="{record}|"),
                  Letter(GUIDELINES, shown="{record}&"), hide=hide)  # fmt: skip


class Letter(RecordWriter):
    """A record without the end mark."""

    async def record(self, hand: Any, entry: Any) -> str:
        """The letter alone."""
        return entry.text.rstrip("!")


def tmas(seed: int) -> Found:
    """Four rounds of four attempts over two banks against the same without banks; the policy trusts what it sees.

    Both arms have as many attempts and the same noisy judge: of a right and a wrong attempt the mean of its eight
    words prefers the wrong one once in six, so what enters the experience may be wrong, and is believed.
    """
    account = Budget()
    shown = grown(banked(2.0), seed, items=150, engine=reader(trusts=True), account=account)
    plain = grown(banked(2.0, hide=BANKS), seed, items=150, engine=reader(trusts=True))
    return Found(right(shown), right(plain), acted=counted("tmas", shown, account))


def backwards(knows: float = 0.8, fits: int = 1) -> TabularEngine:
    """A policy that answers as `reader` does, and after an answer names one of the `fits` questions it may belong to
    with `knows`: with 2, a and b belong to both of their questions, and so do c and d, and so on.
    """
    first = reader()

    def row(prefix: tuple[int, ...]) -> list[float]:
        if ASK in prefix:
            return [float(np.exp(x)) for x in first.row(prefix)]
        out = [0.0] * len(LETTERS.alphabet)
        if len(prefix) < 3:
            said = prefix[0] // fits if prefix else -1
            for letter in range(8):
                mine, other = knows / fits, (1 - knows) / (8 - fits)
                out[letter] = (mine if letter // fits == said else other) if knows > 1 / 8 else 1 / 8
        else:
            out[ASK] = 1.0
        return out

    return TabularEngine(row, LETTERS)


def st_raptor(seed: int) -> Found:
    """The answer from which the question is found again, of eight, against the majority of sixteen: a reading is a call
    as an attempt is. An answer leads back to two questions, so that a wrong one may score as well as the right one.
    """
    account, policy = Budget(), backwards(fits=2)
    strategy = load_recipe("st_raptor", ask="{text}").build().strategy
    assert isinstance(strategy, BestJudged)
    forest = grown(strategy, seed, items=200, engine=policy, account=account)
    votes = grown(Independent(2 * strategy.n), seed, items=200, engine=policy)
    return Found(right(forest), float(np.mean([_majority(tree) for tree in votes])),
                 acted=counted("st_raptor", forest, account))  # fmt: skip


def _majority(tree: Tree) -> bool:
    said = [leaf.notes["answer"] for leaf in tree.leaves()]
    return max(said, key=said.count) == tree.notes["expected"]


def repeated(forest: Forest) -> float:
    """Share of the attempts that were shown what had been tried, or would have been, and repeat it."""
    rows = []
    for tree in forest:
        role = str(tree.notes.get("role", ""))
        if role.startswith((GUIDELINES, "plain")):
            before = {n.notes["answer"] for t in forest if t.id == tree.id.split("/")[0] for n in t.leaves()}
            rows += [leaf.notes["answer"] in before for leaf in tree.leaves()]
    return float(np.mean(rows))
