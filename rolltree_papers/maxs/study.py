"""MAXS on a policy with traps: `python -m rolltree_papers.maxs.study`.

Half of the first steps lead to a good path and half to a trap, and both are equally likely as a whole. On the good path
every step has probability ½ (one of two letters); in a trap a step of probability 1 and one of ¼ alternate. Without
traps both look the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Verdict
from rolltree.tree import Forest
from rolltree_papers.maxs import Foresight, LookAheadSteps
from studies.command import run_study
from studies.lab.claim import Measured
from studies.questions import Questions

LETTERS = Letters("gtabcd!?")
LENGTH = 7


@dataclass(frozen=True, slots=True)
class Path(Questions):
    """Be on the good path."""

    name: str = "path"
    max_tokens: int = LENGTH + 1

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """The first step says it."""
        return Verdict(float(text[:1] == "g"), answer=text[:1])


def policy(*, trap: bool = True) -> TabularEngine:
    """Steps are single letters, all that are possible at a place equally likely."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        at = len(prefix) - 1
        if at == 0:
            ways = (0, 2)
        elif at == LENGTH:
            ways = (6, 7)
        elif trap and LETTERS.alphabet[prefix[1]] == "t":
            ways = (2, 3) if at % 2 else (2, 6)
        else:
            ways = (2, 4)
        return [float(ways[0] <= i < ways[1]) / (ways[1] - ways[0]) for i in range(len(LETTERS.alphabet))]

    return TabularEngine(row, LETTERS)


def grown(rule: Foresight, seed: int, items: int = 200, *, trap: bool = True, **knobs: Any) -> Forest:
    """A forest of paths."""
    asked, strategy = (
        islice(Path().items("train", seed), items),
        LookAheadSteps(1, step=1, delimiter="", rule=rule, **knobs),
    )
    return asyncio.run(grow(strategy, policy(trap=trap), Path(), asked, seed=seed))


def good(forest: Forest) -> float:
    """Share of the answers on the good path."""
    return float(np.mean([tree.notes.get("answer") == "g" for tree in forest]))


def told_apart(forest: Forest) -> float:
    """Share of the answers whose first candidates had different rewards; as a whole all paths are equally likely."""
    first = [next(e for e in tree.events if e.kind == "select").numbers["rewards"] for tree in forest]
    return float(np.mean([max(rewards) - min(rewards) > 1e-3 for rewards in first]))


def traps(seed: int) -> Measured:
    """Foresight with the variance terms and without, all other constants as published."""
    published = load_recipe("maxs", step=1, delimiter="").build().strategy
    assert isinstance(published, LookAheadSteps)
    rules = (published.rule, replace(published.rule, alpha=0.0, beta=0.0))
    with_, without = (grown(rule, seed, 300) for rule in rules)
    return Measured(good(with_), good(without), acted={"first steps told apart": told_apart(with_)})


RULES = {
    "published": Foresight(), "never ending": Foresight(delta=-1.0), "τ = 0.1": Foresight(0.1, delta=-1.0),
    "no variance": Foresight(0.1, 0.0, 0.0, -1.0),
}  # fmt: skip


@dataclass(frozen=True)
class ForesightSettings:
    """How much is run."""

    items: int = 300
    """Answers of each arm."""


def main(settings: ForesightSettings) -> None:
    """Shares on the good path, with traps and without."""
    for trap in (True, False):
        for name, rule in RULES.items():
            found = grown(rule, 0, settings.items, trap=trap)
            steps = np.mean([sum(e.kind == "select" for e in tree.events) for tree in found])
            print(f"{'traps' if trap else 'smooth':7s} {name:14s} good {good(found):.3f}  steps chosen {steps:.1f}")


if __name__ == "__main__":
    raise SystemExit(run_study("rolltree_papers.maxs.study", ForesightSettings, main, __doc__))
