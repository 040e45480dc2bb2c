"""A judge's word as part of a rollout: a strategy grows, then a judge reads some leaves and writes scores on them.

The judge is asked while other trees still grow. As a reward it must not move with the policy: let it be a peer that is
not trained (`Parts.peers`), a snapshot of the first policy. A leaf that the judge broke on is a failed leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.against import against
from rolltree.generate.judge.protocol import Judge, JudgeError, entries
from rolltree.generate.strategy import ChecksEngine, TreeStrategy, written
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree
from rolltree.tree.node import is_solved

JUDGED = "judge"
"""The score that a grade is written to."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Grades the leaves that `on` selects, each by itself, and writes the grade to their score `score`."""

    inner: TreeStrategy
    judge: Judge
    on: Literal["all", "right"] = "all"
    abstained: float | None = None
    """What an abstention counts as; None = the leaf is dropped with that reason."""
    score: str = JUDGED
    """The score that the grade is written to: a name of its own where several judges grade the same leaves."""

    @property
    def writes(self) -> frozenset[str]:
        """Its grade, which a reward may have for a part, and what the strategy writes."""
        return written(self.inner) | {"judged:grade", f"part:{self.score}"}

    @property
    def needs(self) -> frozenset[str]:
        """Of the strategy."""
        return self.inner.needs

    @property
    def want(self) -> frozenset[str]:
        """What the strategy records."""
        return getattr(self.inner, "want", frozenset[str]())

    def check(self, engine: Engine, task: Task) -> None:
        """As of the strategy."""
        _check(self.inner, engine, task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then judge."""
        await self.inner.grow_tree(tree, hand)
        leaves = [leaf for leaf in ended(tree) if self.on == "all" or is_solved(leaf.scores)]
        if not leaves:
            return
        said = await hand.judge(self.judge, [[entry] for entry in entries(hand, leaves)], about="leaves")
        for leaf, opinion in zip(leaves, said, strict=True):
            if opinion is None:
                _unjudged(hand, leaf, self.judge)
            elif not np.isnan(opinion[0]):
                leaf.scores[self.score] = opinion[0]
            elif self.abstained is not None:
                leaf.scores[self.score] = self.abstained
            else:
                leaf.usage = "dropped: the judge abstained"


def judged_parts(inner: TreeStrategy, judges: Mapping[str, Judge], abstained: float | None = None) -> TreeStrategy:
    """Grades of several judges on the same leaves, each in the score of its name: parts of a reward (`Composite`)."""
    for score, judge in judges.items():
        inner = Judged(inner, judge, abstained=abstained, score=score)
    return inner


@dataclass(frozen=True, slots=True)
class JudgedAgainst:
    """Compares every leaf with a random one of its tree in both orders, and writes `versus` and `reference` (BRPO)."""

    inner: TreeStrategy
    judge: Judge
    votes: int = 1
    """Votes in each of the two orders."""

    @property
    def writes(self) -> frozenset[str]:
        """Who won, and what the strategy writes."""
        return written(self.inner) | {"judged:versus"}

    @property
    def needs(self) -> frozenset[str]:
        """Of the strategy."""
        return self.inner.needs

    @property
    def want(self) -> frozenset[str]:
        """What the strategy records."""
        return getattr(self.inner, "want", frozenset[str]())

    def check(self, engine: Engine, task: Task) -> None:
        """As of the strategy."""
        _check(self.inner, engine, task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then compare."""
        await self.inner.grow_tree(tree, hand)
        leaves = ended(tree)
        if not leaves:
            return
        rng = hand.rng.child("against", self.judge.name).generator()
        chosen = int(rng.integers(len(leaves)))
        won = await against(hand, self.judge, entries(hand, leaves), chosen, self.votes, rng)
        for i, leaf in enumerate(leaves):
            if np.isnan(won[i]):
                _unjudged(hand, leaf, self.judge)
            else:
                leaf.scores.update(versus=float(won[i]), reference=float(i == chosen))
        hand.event("note", leaves[chosen], "the answer the others were compared with", judge=self.judge.name)


def ended(tree: Tree) -> list[Node]:
    """Leaves with an outcome."""
    return [leaf for leaf in tree.leaves() if leaf.status == "done" and "reward" in leaf.scores]


def _unjudged(hand: Hand, leaf: Node, judge: Judge) -> None:
    """A leaf without a word of the judge: dropped where the budget was at its end, failed where something broke."""
    budget = hand.budget
    poor = budget.remaining("judge_calls") < judge.calls(1) or budget.remaining("decoded") < 1
    if poor or budget.remaining("prefilled") < len(hand.tree.prefix(leaf)) or budget.seconds_left <= 0:
        leaf.usage = "dropped: the budget ended before it was judged"
        return
    hand.fail(leaf, "judging", JudgeError(f"the judge {judge.name!r} did not answer; the tree's events say why"))
    for name in ("reward", "solved"):  # what failed has no outcome
        leaf.scores.pop(name, None)


def _check(inner: TreeStrategy, engine: Engine, task: Task) -> None:
    if isinstance(inner, ChecksEngine):
        inner.check(engine, task)


def graded(leaves: Sequence[Node]) -> list[tuple[float, bool]]:
    """Grades and whether the verifier calls the leaf right: what a judge is calibrated on."""
    return [(leaf.scores[JUDGED], is_solved(leaf.scores)) for leaf in leaves if JUDGED in leaf.scores]
