"""SCOPE's repairs on chains of steps: `python -m rolltree_papers.scope.study`.

An answer has six steps; the policy errs at each with the same chance and says how sure it was, so a step judge with no
errors finds the first wrong step, and one that gives false alarms cuts too early. The table has the share of groups
with right and wrong rollouts, which is what group credit learns from, and the tokens of a corrector that never errs.
The claim is about what is learned: a policy with a chance for each step is trained on repaired groups, or on groups in
which a corrector that errs too wrote whole rollouts, from as many of its tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.judge.protocol import Opinion, Question
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Verdict
from rolltree.tree import Forest, Tree
from rolltree.tree.steps import solved
from rolltree_papers.scope import CORRECTOR, Repaired
from studies.command import run_study
from studies.lab.claim import Measured
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


def chain(*wrong: float) -> TabularEngine:
    """A policy that errs at each step with that chance: one for all steps, or one for each."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        at = len(prefix) - 1
        if at % 2:
            return [0.0, 0.0, 0.0, 1.0, 0.0] if at == 2 * STEPS - 1 else [0.0, 0.0, 1.0, 0.0, 0.0]
        errs = wrong[at // 2 % len(wrong)]
        return [1 - errs, errs, 0.0, 0.0, 0.0]

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


def grown(strategy: Repaired, seed: int, items: int = 60, wrong: Sequence[float] = (0.4,), errs: float = 0.0) -> Forest:
    """A forest of repaired groups; the corrector `errs` at each step with that chance."""
    task = Chain()
    asked, roles = islice(task.items("train", seed), items), {CORRECTOR: chain(errs)}
    return asyncio.run(grow(strategy, chain(*wrong), task, asked, seed=seed, roles=roles))


def varied(forest: Forest) -> float:
    """Share of groups with right and wrong rollouts."""
    kinds = [{solved(leaf) for leaf in tree.leaves() if leaf.status == "done"} for tree in forest]
    return float(np.mean([len(kind) == 2 for kind in kinds]))


def corrected(forest: Forest) -> float:
    """Tokens that the corrector wrote, per group."""
    return float(np.mean([sum(len(n) for n in tree if n.actor == CORRECTOR) for tree in forest]))


REPAIR = Repaired(8, Reader(), most=0.5)


@dataclass(frozen=True, slots=True)
class Trained:
    """What a policy learned, and from what."""

    accuracy: float
    """Of the policy by itself, exactly."""
    tokens: tuple[int, ...]
    """The corrector's, refused ones included, by update."""
    kept: int
    """Rollouts whose own first steps stand before a correction."""


Rows = tuple[np.ndarray, np.ndarray]
"""Of a group's rollouts, which steps are good, and which were not the policy's."""


def trained(
    strategy: Repaired, seed: int, whole: Sequence[int] | None = None, updates: int = 20, items: int = 4,
    rate: float = 1.0, errs: float = 0.1, gamma: float = 0.1,
) -> Trained:  # fmt: skip
    """A policy trained by group credit, policy gradient and the shaped weight of what was not sampled.

    With `whole`, nothing is repaired: failed rollouts are replaced by the corrector's own, as long as these tokens
    last; what an update does not need is left to the next.
    """
    logits, rng, left = np.full(STEPS, np.log(0.6 / 0.4)), np.random.default_rng([seed, 37]), 0
    spent, kept = list[int](), 0
    for update in range(updates):
        right = 1 / (1 + np.exp(-logits))
        how = strategy if whole is None else replace(strategy, threshold=-1.0)
        forest = grown(how, seed * updates + update, items, tuple(1 - right), errs)
        groups = [_rows(tree) for tree in forest]
        if whole is None:
            spent.append(round(items * corrected(forest)))
            kept += sum(int((forced.any(1) & ~forced.all(1)).sum()) for _, forced in groups)
        else:
            before = left + whole[update]
            left = before
            for good, forced in groups:
                left = _replaced(good, forced, left, errs, rng)
            spent.append(before - left)
        slope = np.zeros(STEPS)
        for good, forced in groups:
            reward = good.all(1).astype(float)
            advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
            chance = np.where(good, right, 1 - right)
            weight = np.where(forced, gamma * chance / (chance + gamma) ** 2, 1.0)
            slope += (advantage[:, None] * weight * (good - right)).mean(0) / items
        logits += rate * slope
    return Trained(float(np.prod(1 / (1 + np.exp(-logits)))), tuple(spent), kept)


def _rows(tree: Tree) -> Rows:
    good, forced = [], []
    for leaf in tree.leaves():
        if leaf.status == "done":
            said = str(leaf.notes["answer"]).rstrip("!").split(",")
            good.append([step == "g" for step in said])
            own = STEPS - (len(leaf) // 2 if leaf.forced else 0)
            forced.append([i >= own for i in range(STEPS)])
    return np.array(good), np.array(forced)


def _replaced(good: np.ndarray, forced: np.ndarray, tokens: int, errs: float, rng: np.random.Generator) -> int:
    """Whole rollouts of the corrector for the failed ones, one try each; those that are right stay. The tokens left."""
    for i in np.flatnonzero(~good.all(1)):
        if tokens < 2 * STEPS:
            break
        tokens -= 2 * STEPS
        if (rng.random(STEPS) >= errs).all():
            good[i], forced[i] = True, True
    return tokens


def learned(seed: int) -> Measured:
    """The policy's own accuracy after 20 updates with repairs, against the better of two: whole rollouts of the
    corrector from as many of its tokens, and groups without a corrector. The judge has a false word about one step in
    ten, and the corrector errs as often. The curve has both.
    """
    strategy = load_recipe("scope").build().strategy
    assert isinstance(strategy, Repaired)
    ours = trained(replace(strategy, judge=Reader(0.1)), seed)
    whole, plain = (trained(strategy, seed, whole=w).accuracy for w in (ours.tokens, (0,) * len(ours.tokens)))
    return Measured(
        ours.accuracy, max(whole, plain), {"whole rollouts, no corrector": ([0.0, 1.0], [whole, plain])},
        {"rollouts repaired behind their own steps": float(ours.kept)},
    )  # fmt: skip


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
    raise SystemExit(run_study("rolltree_papers.scope.study", RepairSettings, main, __doc__))
