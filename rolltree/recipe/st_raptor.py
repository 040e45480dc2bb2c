"""ST-Raptor's backward verification: keep the answer from which the question can be found again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.judge.backward import Backward
from rolltree.generate.methods.best_judged import BestJudged
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


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
                 check="studies.roles:st_raptor"),
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
