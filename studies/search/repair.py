"""SCOPE's repairs on chains of steps: `python -m studies.search.repair`.

An answer has six steps; the policy errs at each with the same chance and says how sure it was, so a step judge with no
errors finds the first wrong step, and one that gives false alarms cuts too early. The corrector never errs. What counts
is the share of groups that hold right and wrong rollouts, which is what group credit learns from, and the tokens that
the corrector wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.judge.protocol import Opinion, Question
from rolltree.generate.methods.scope import CORRECTOR, Repaired
from rolltree.generate.runner import grow
from rolltree.lab.acted import counted
from rolltree.lab.claim import Measured
from rolltree.task.protocol import Item, Verdict
from rolltree.tree import Forest
from rolltree.tree.steps import solved
from studies.command import run_study
from studies.questions import Questions

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

LETTERS = Letters("gx,!?")
STEPS = 6


@dataclass(frozen=True, slots=True)
class Chain(Questions):
    """Six good steps."""

    name: str = "chain"
    max_tokens: int = 2 * STEPS

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """All six, each with its comma but the last, which has the mark."""
        return Verdict(float(text == ",".join("g" * STEPS) + "!"), answer=text)


def chain(wrong: float) -> TabularEngine:
    """A policy that errs at each step with that chance."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        at = len(prefix) - 1
        if at % 2:
            return [0.0, 0.0, 0.0, 1.0, 0.0] if at == 2 * STEPS - 1 else [0.0, 0.0, 1.0, 0.0, 0.0]
        return [1 - wrong, wrong, 0.0, 0.0, 0.0]

    return TabularEngine(row, LETTERS)


@dataclass(frozen=True, slots=True)
class Reader:
    """A step judge that sees the step, with a chance of a false word about each."""

    noise: float = 0.0
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its noise."""
        return f"reader noise={self.noise:g}"

    def calls(self, size: int) -> int:
        """None."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """1 for a good last step, 0 for a bad one."""
        return [
            [float(("x" not in e.text.rstrip(",!")[-1:]) != (rng.random() < self.noise)) for e in q] for q in questions
        ]


def grown(strategy: Repaired, seed: int, items: int = 60, wrong: float = 0.4, account: Budget | None = None) -> Forest:
    """A forest of repaired groups."""
    task = Chain()
    asked, roles = islice(task.items("train", seed), items), {CORRECTOR: chain(0.0)}
    return asyncio.run(grow(strategy, chain(wrong), task, asked, seed=seed, roles=roles, budget=account))


def varied(forest: Forest) -> float:
    """Share of groups with right and wrong rollouts."""
    kinds = [{solved(leaf) for leaf in tree.leaves() if leaf.status == "done"} for tree in forest]
    return float(np.mean([len(kind) == 2 for kind in kinds]))


def corrected(forest: Forest) -> float:
    """Tokens that the corrector wrote, per group."""
    return float(np.mean([sum(len(n) for n in tree if n.actor == CORRECTOR) for tree in forest]))


REPAIR = Repaired(8, Reader(), most=0.5)


def groups(seed: int) -> Measured:
    """Groups with both kinds, with half of the failed rollouts repaired and with none; same rollouts otherwise."""
    account = Budget()
    forest, plain = grown(REPAIR, seed, account=account), grown(replace(REPAIR, threshold=-1.0), seed)
    return Measured(varied(forest), varied(plain), acted=counted("scope", forest, account))


@dataclass(frozen=True)
class RepairSettings:
    """How much is run."""

    items: int = 200
    """Groups of each arm."""


def main(settings: RepairSettings) -> None:
    """Groups with both kinds and the corrector's tokens, by the judge's false words."""
    for noise in (0.0, 0.1, 0.4):
        found = grown(replace(REPAIR, judge=Reader(noise)), 0, settings.items)
        print(f"judge noise {noise:.1f}  both kinds {varied(found):.3f}  corrector's tokens {corrected(found):.1f}")
    none = grown(replace(REPAIR, threshold=-1.0), 0, settings.items)
    print(f"no repairs       both kinds {varied(none):.3f}")


if __name__ == "__main__":
    raise SystemExit(run_study("search.repair", RepairSettings, main, __doc__))
