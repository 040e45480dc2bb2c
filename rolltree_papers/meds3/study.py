"""MedS³'s step values against exact ones: `python -m rolltree_papers.meds3.study`.

An answer has six steps; one in five letters is drawn for each, the policy errs at each with the same chance, and an
answer is right with at most one error, so that a step's exact value follows from its errors and its depth. MedS³ values
the steps that its search reaches. The flat control spends the same tokens on independent rollouts and takes for each
step the share of right ones among those that begin so. Both are asked how well they rank the steps they have values of;
the control has values of about seven times as many, most of them from a single rollout.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import comb
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.search.backup import Blend
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Item, Verdict
from rolltree.tree import Forest
from rolltree.tree.steps import STEP_VALUE, solved
from rolltree_papers.meds3 import SlowThinking
from studies.command import run_study
from studies.lab.claim import Measured
from studies.questions import Questions

GOOD, BAD = "abc", "xy"
LETTERS = Letters(GOOD + BAD + ",!?")
STEPS, WRONG, MOST = 6, 0.4, 1
Values = Mapping[tuple[int, str], tuple[float, float]]
"""By tree and text up to a step's end: what it is said to be worth, and what it is."""


@dataclass(frozen=True, slots=True)
class Slips(Questions):
    """Six steps with at most one slip."""

    name: str = "slips"
    max_tokens: int = 2 * STEPS

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Ended, and not too many slips."""
        return Verdict(float(text.endswith("!") and slips(text) <= MOST), answer=text)


def slips(text: str) -> int:
    """Bad steps in a text."""
    return sum(c in BAD for c in text)


def policy() -> TabularEngine:
    """It errs at each step with the same chance, whatever stands before; after the last step it ends."""
    ask = LETTERS.encode("?")[0]

    def row(prefix: tuple[int, ...]) -> list[float]:
        at = prefix[::-1].index(ask)
        if at % 2:
            return [0.0] * 5 + ([0.0, 1.0, 0.0] if at == 2 * STEPS - 1 else [1.0, 0.0, 0.0])
        return [(1 - WRONG) / len(GOOD)] * len(GOOD) + [WRONG / len(BAD)] * len(BAD) + [0.0] * 3

    return TabularEngine(row, LETTERS)


def exact(text: str) -> float:
    """The chance that an answer that begins so ends right."""
    left, spare = STEPS - text.count(","), MOST - slips(text)
    return float(sum(comb(left, k) * WRONG**k * (1 - WRONG) ** (left - k) for k in range(spare + 1)))


def grown(strategy: TreeStrategy, seed: int, items: int = 20, account: Budget | None = None) -> Forest:
    """A forest of one strategy."""
    task = Slips()
    return asyncio.run(
        grow(strategy, policy(), task, islice(task.items("train", seed), items), seed=seed, budget=account)
    )


def searched(forest: Forest) -> Values:
    """Values that the search wrote at the ends of open steps of first answers."""
    out: dict[tuple[int, str], tuple[float, float]] = {}
    for number, tree in enumerate(forest):
        for node in tree:
            text = LETTERS.decode(tree.prefix(node)).removeprefix("?")
            if STEP_VALUE in node.scores and text.endswith(",") and "?" not in text:
                out[number, text] = (node.scores[STEP_VALUE], exact(text))
    return out


def flat(forest: Forest) -> Values:
    """Shares of right rollouts among those that begin with a step."""
    seen: dict[tuple[int, str], list[bool]] = defaultdict(list)
    for number, tree in enumerate(forest):
        for leaf in tree.leaves():
            text = LETTERS.decode(tree.prefix(leaf)).removeprefix("?")
            for end in range(2, 2 * STEPS, 2):
                seen[number, text[:end]].append(solved(leaf))
    return {key: (float(np.mean(right)), exact(key[1])) for key, right in seen.items()}


def rank(values: Values) -> float:
    """Spearman's correlation of said and exact values."""
    said, true = zip(*values.values(), strict=True)
    return float(spearmanr(said, true).statistic)  # pyright: ignore


def control(forest: Forest, seed: int, items: int = 20) -> Values:
    """The flat control with as many decoded tokens as a forest took."""
    spent = sum(len(node) for tree in forest for node in tree if node.role == "policy")
    return flat(grown(Independent(max(1, round(spent / items / (2 * STEPS)))), seed, items))


def values(seed: int) -> Measured:
    """Rank correlation with exact values, of the search and of as many tokens in independent rollouts."""
    account = Budget()
    forest = grown(SlowThinking(), seed, account=account)
    return Measured(rank(searched(forest)), rank(control(forest, seed)), acted=counted("meds3", forest, account))


@dataclass(frozen=True)
class SlowSettings:
    """How much is run."""

    items: int = 40
    """Trees of each arm."""


def main(settings: SlowSettings) -> None:
    """Ranks, errors and bias, by what is told upwards and how many direct answers are drawn."""
    base = SlowThinking()
    arms = {
        "comp (released)": base,
        "children's mean": replace(base, backup=Blend(1.0)),
        "five answers everywhere": replace(base, samples=5),
        "no reflection": replace(base, reflect=""),
    }
    for label, strategy in arms.items():
        forest = grown(strategy, 0, settings.items)
        told = searched(forest)
        for name, found in ((label, told), ("  flat, same tokens", control(forest, 0, settings.items))):
            off = np.asarray([said - true for said, true in found.values()])
            print(
                f"{name:24s} rank {rank(found):.3f}  error {np.abs(off).mean():.3f}  bias {off.mean():+.3f}"
                f"  steps {len(found) / settings.items:.1f}"
            )


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.meds3.study", SlowSettings, main, __doc__))
