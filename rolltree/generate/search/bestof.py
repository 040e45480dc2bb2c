"""Independent answers and a choice among them: what every search is held against."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from rolltree.generate.choose import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, ReadsJudge
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import play
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class BestOf(ReadsJudge):
    """Plays up to `n` rollouts, `wave` of them at a time until the budget ends, and chooses.

    majority: the most frequent answer; weighted: most of the judge's value in all; best: the answer of the single best.
    """

    n: int = 8
    final: Literal["majority", "weighted", "best"] = "majority"
    judge: Judge = field(default_factory=Confidence)
    """Of single paths."""
    wave: int = 4
    """Rollouts under way at once: the budget is spent to within so many of them."""

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Waves of rollouts, then the choice."""
        made = 0
        while made < self.n and hand.budget.remaining("decoded") >= 1:
            count = min(self.wave, self.n - made)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(play(hand, tree.root, want=self.want)) for _ in range(count)]
            if all(task.result() is tree.root for task in tasks):
                break
            made += count
        done = finished(tree)
        if self.final != "majority":
            for leaf, value in zip(done, await grades(hand, self.judge, done), strict=True):
                leaf.scores["value"] = value
        decide(hand, done, "best" if self.final == "best" else "vote")
