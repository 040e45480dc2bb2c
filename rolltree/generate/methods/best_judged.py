"""Independent attempts, a judge's grade for each, and the answer that the grades choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rolltree.generate.decide import decide
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judge.recorded import ReadsJudge
from rolltree.generate.judged import JUDGED, Judged
from rolltree.generate.methods.retried import Retried
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class BestJudged(ReadsJudge):
    """Best of n by a judge: the single best attempt's answer, or the one with most grades in all.

    An attempt that the judge abstained from has no say.
    """

    n: int
    judge: Judge
    final: Literal["best", "vote"] = "best"
    tries: int = 1
    """Most tries of a step that the environment refuses."""

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Attempt, judge, choose."""
        attempts = Independent(self.n, want=self.want)
        if self.tries > 1:
            attempts = Retried(self.n, self.tries, want=self.want)
        await Judged(attempts, self.judge).grow_tree(tree, hand)
        leaves = [leaf for leaf in tree.leaves() if leaf.status == "done" and JUDGED in leaf.scores]
        for leaf in leaves:
            leaf.scores["value"] = leaf.scores[JUDGED]
        decide(hand, leaves, self.final)
