"""Labels by path, or level by level, held against exact numbers: `python -m rolltree_papers.label_tree.study`.

A tree of labels of two names a level; an exact policy prefers the right name of a level with a chance that is drawn
anew for every item and level, so that from the top down it is right with the product of the levels' accuracies. Whole
paths at once are read by the same policy, each of them whole. Cost is in tokens read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product
from random import Random
from typing import Any

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.task.items import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict
from rolltree_papers.label_tree import LabelChoice, Topology
from studies.command import run_study
from studies.lab.claim import Measured

LETTERS = Letters("ab/0123456789?")


@dataclass(frozen=True, slots=True)
class Labelled(SingleTurn):
    """The label of a number."""

    name: str = "labelled"
    level: int = 0
    stop: tuple[str, ...] = ()
    max_tokens: int = 16
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Numbers in turn, with labels by chance."""
        number = 0
        while True:
            yield Item(f"{split}-{seed}-{number}", f"{seed % 10}{number:04d}?", truth(f"{seed % 10}{number:04d}", 8))
            number += 1

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Right if it is the path, or its beginning where the tree has fewer levels."""
        return Verdict(float(item.answer.startswith(text) and bool(text)), answer=text)


def truth(number: str, depth: int) -> str:
    """The right path of a number."""
    rng = Random(f"truth/{number}")
    return "/".join(rng.choice("ab") for _ in range(depth))


def namer(levels: tuple[float, ...]) -> TabularEngine:
    """A policy that is right about a level's name with that level's chance, once the names above it stand."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        text, out = LETTERS.decode(prefix), [1e-9] * len(LETTERS.alphabet)
        number, _, said = text.partition("?")
        names = said.split("/")
        level = len(names) - 1
        if said and not said.endswith("/"):
            out[LETTERS.alphabet.index("/")] = 1.0
            return out
        right = truth(number, 8).split("/")
        accuracy = levels[min(level, len(levels) - 1)]
        # Wrong or right is drawn once for an item, a level and what stands above it.
        good = Random(f"level/{number}/{said}").random() < accuracy
        other = "b" if right[min(level, 7)] == "a" else "a"
        named = right[min(level, 7)] if good else other
        out[LETTERS.alphabet.index(named)] = 0.8
        out[LETTERS.alphabet.index("a" if named == "b" else "b")] = 0.2
        return out

    return TabularEngine(row, LETTERS)


def labels(depth: int) -> tuple[str, ...]:
    """All paths of so many levels."""
    return tuple("/".join(names) for names in product("ab", repeat=depth))


def measured(
    topology: Topology, levels: tuple[float, ...], seed: int, items: int = 200, account: Budget | None = None
) -> tuple[float, float]:
    """Share of right labels, and tokens an item."""
    budget, task = account or Budget(), Labelled()
    strategy = LabelChoice(labels(len(levels)), topology, ask="{prompt}{path}", mean=False)
    forest = asyncio.run(
        grow(strategy, namer(levels), task, islice(task.items("test", seed), items), seed=seed, budget=budget)
    )
    right = [n.scores["reward"] for tree in forest for n in tree if "reward" in n.scores]
    return float(np.mean(right)), (budget.spent.decoded + budget.spent.prefilled) / items


def down(seed: int) -> Measured:
    """From the top down at accuracies .9, .8 and .9, against their product."""
    levels = (0.9, 0.8, 0.9)
    account = Budget()
    right = measured("down", levels, seed, account=account)[0]
    return Measured(right, float(np.prod(levels)), acted=counted("label_tree", (), account))


@dataclass(frozen=True)
class LabelsSettings:
    """How much is run."""

    depths: tuple[int, ...] = field(default=(1, 2, 3, 4))
    """Levels of the tree."""
    accuracy: float = 0.85
    """Of each level."""


def main(settings: LabelsSettings) -> None:
    """Right labels and tokens by depth; the product beside them."""
    arms: tuple[Topology, ...] = ("path", "down")
    for depth in settings.depths:
        levels = (settings.accuracy,) * depth
        for arm in arms:
            right, tokens = measured(arm, levels, 0)
            print(f"{depth} levels  {arm:4s}  right {right:.3f} (product {np.prod(levels):.3f})  tokens {tokens:.0f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.label_tree.study", LabelsSettings, main, __doc__))
