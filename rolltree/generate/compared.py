"""Leaves compared with all others of their tree by a judge: a reward where answers can be compared and not graded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.against import all_pairs
from rolltree.generate.judge.protocol import Judge, JudgeError, entries
from rolltree.generate.judged import JUDGED, ended
from rolltree.generate.strategy import ChecksEngine, TreeStrategy, written
from rolltree.task.protocol import Task
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class Compared:
    """Compares every two leaves in both orders, and writes the share of readings that each won to `judge`.

    n leaves cost n · (n − 1) readings (self-improving pretraining's judge, arXiv 2601.21343).
    """

    inner: TreeStrategy
    judge: Judge

    @property
    def writes(self) -> frozenset[str]:
        """Its grade, which a reward may have for a part, and what the strategy writes."""
        return written(self.inner) | {f"part:{JUDGED}"}

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
        if isinstance(self.inner, ChecksEngine):
            self.inner.check(engine, task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then compare."""
        await self.inner.grow_tree(tree, hand)
        leaves = ended(tree)
        if len(leaves) < 2:
            for leaf in leaves:
                leaf.usage = "dropped: there was nothing to compare it with"
            return
        rng = hand.rng.child("compared", self.judge.name).generator()
        won = await all_pairs(hand, self.judge, entries(hand, leaves), rng)
        for leaf, share in zip(leaves, won, strict=True):
            if not np.isnan(share):
                leaf.scores[JUDGED] = float(share)
            elif min(hand.budget.remaining("judge_calls"), hand.budget.remaining("decoded")) < 1:
                leaf.usage = "dropped: the budget ended before it was judged"
            else:
                hand.fail(leaf, "judging", JudgeError(f"the judge {self.judge.name!r} compared it with no other"))
                for name in ("reward", "solved"):  # what failed has no outcome
                    leaf.scores.pop(name, None)
