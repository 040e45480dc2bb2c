"""ST-Raptor's backward verification: keep the answer from which the question can be found again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.backward import Backward
from rolltree.generate.judge.protocol import Judge, ReadsJudge
from rolltree.generate.judged import JUDGED, Judged
from rolltree.generate.turns import proceed, stretch
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.tree import Node, Tree

# Steps that must work: a call that the environment refuses is taken back and written anew (ST-Raptor's forward
# validation).

REFUSED = "the environment refused the call"
"""Why a step is taken back."""


@dataclass(frozen=True, slots=True)
class Retried:
    """n independent rollouts, whose failed calls are pruned and tried again from the place before; the last try stays.

    The policy does not see what went wrong: the step is drawn again. Without an environment these are `Independent`'s
    rollouts. An environment whose calls cannot be taken back is played again up to the place.
    """

    n: int = 8
    tries: int = 5
    """Most tries of a step."""
    needs: frozenset[str] = frozenset()
    want: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Play all branches at once."""
        old = [leaf for leaf in tree.leaves() if leaf.parent is not None]
        async with asyncio.TaskGroup() as group:
            for leaf in old:
                if leaf.status == "paused":
                    group.create_task(proceed(hand, leaf, want=self.want))
            for _ in range(int(min(self.n - len(old), hand.budget.remaining("leaves")))):
                group.create_task(self._play(hand, tree.root))

    async def _play(self, hand: Hand, here: Node) -> None:
        while here.status == "open" or here.parent is None:
            end = await self._step(hand, here)
            if end is None:
                return
            here = end

    async def _step(self, hand: Hand, here: Node) -> Node | None:
        """Where a step led: the first that worked, or the last there was; None where nothing could be paid."""
        for number in range(self.tries):
            ends = await stretch(hand, here, want=self.want)
            if not ends:
                return None
            end = ends[0]
            if not end.notes.get("failed") or number == self.tries - 1:
                return end
            hand.prune(hand.tree.path(end)[len(hand.tree.path(here))], why=REFUSED, tries=number + 1)
        return None


# Independent attempts, a judge's grade for each, and the answer that the grades choose.


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


@dataclass(frozen=True, slots=True)
class StRaptor:
    """Several answers, each scored by how well the question is found again from it alone; the best is the answer.

    No label and no second model. Forward validation is of calls: one that the environment refuses is taken back and
    drawn again, unseen; arguments are aligned with a table's labels by the environment or by nobody. The tables, their
    trees and the pipeline of operations are the paper's and are left out. A wrong answer of the right kind may score as
    well as a right one: where the answer does not tell which question it answers, the choice is one by chance. The one
    that reconstructs never sees the question, as it does in the released code. Likeness is of likelihood or of pieces
    of words, where the paper compares embeddings. A reading costs a call, so its evidence holds eight answers with
    eight readings against the majority of sixteen, where an answer leads back to two questions.
    """

    card: ClassVar[Card] = Card(
        "st_raptor", "Backward verification of ST-Raptor", "ST-Raptor", 2025,
        "up to 20 points of answer accuracy on semi-structured tables over nine baselines, with all of its parts",
        ("filter",), "grpo",
        Evidence("right answers chosen", "the majority of as many calls", "higher", 0.02, seeds=5,
                 check="rolltree_papers.st_raptor.study:st_raptor"),
        counter=Counter("budget/judge_calls"),
    )  # fmt: skip
    answers: int = 8
    """Answers to choose from."""
    questions: int = 0
    """Questions that are written from each answer (4 in the paper); 0 = read how likely the prompt is after it."""
    ask: str = "{text}\n"
    """What is read before the question: the answer stands for {text}."""
    final: Literal["best", "vote"] = "best"
    """The single best answer, or the one with most score in all."""
    tries: int = 5
    """Most tries of a step, where an environment answers; 1 = what it refuses stays."""

    def build(self) -> Parts:
        """Best of several by the way back; group credit and the clipped surrogate for those who train on it."""
        check_group("st_raptor", self.answers)
        if self.tries < 1:
            raise RecipeError(f"st_raptor: tries={self.tries} tries no step at all; give 1 or more")
        strategy = BestJudged(self.answers, Backward(self.ask, self.questions), self.final, self.tries)
        return Parts("st_raptor", strategy, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
