"""TMAS: multi-agent synergy for test-time scaling (arXiv 2605.10344)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.methods.tmas import EXPERIENCE, GUIDELINES, Banked, RecordWriter
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Tmas:
    """Rounds of attempts: most see what was learned, some see what was tried and are to do something else.

    `rolltree rollout tmas` runs it with a frozen policy; each later round stands in side trees of the forest, and what
    its prompts showed stands in their notes with its sources. The judge is the policy's own likelihood, or one of known
    errors ("measured"). Without `learn` and `avoid` an attempt is its own record. The paper's reports of verifications
    are condensed by a role of their own; here their mean is what counts. How the answer is chosen (most grades in all)
    is reconstructed. The hybrid reward of its training is not published in what could be read, and is left out. Its
    evidence has as many attempts and judge calls in both arms; what is asked is what the banks are worth.
    """

    card: ClassVar[Card] = Card(
        "tmas", "Multi-agent synergy for test-time scaling", "2605.10344", 2026,
        "keeps improving to iteration 19 where refinement plateaus (HLE-Math-100, IMO-AnswerBench-50)",
        ("generate", "filter", "replay"), "rtv",
        Evidence("right answers after four rounds", "the same attempts and judge without banks", "higher", 0.02,
                 seeds=5, check="studies.roles:tmas"),
        counter=Counter("budget/role/experience"),
    )  # fmt: skip
    attempts: int = 8
    """N: attempts of a round."""
    turns: int = 4
    """T: rounds (20 in the paper)."""
    ballots: int = 8
    """M: verifications of an attempt."""
    explore: float = 0.2
    """ε: chance that an attempt sees what was tried instead of what was learned."""
    keep: float = 0.5
    """Grade from which an attempt enters the experience."""
    same: float = 0.8
    """Jaccard index of the words from which two records are the same."""
    most: int = 8
    """Records of a bank."""
    judge: Literal["likelihood", "measured"] = "likelihood"
    """Who judges: the policy by the likelihood of the text, or a stand-in of known quality that sees the outcome."""
    noise: float = 0.3
    """Deviation of each verification of the measured judge."""
    learn: str = ""
    """Asks a role what an attempt teaches: {prompt} and {text} are filled in; "" = the attempt itself."""
    avoid: str = ""
    """Asks a role which way an attempt went; "" = the attempt itself."""
    learned: str = "{record}\n"
    """How a record of the experience stands in front of the prompt."""
    tried: str = "{record}\n"
    """How a guideline stands in front of the prompt."""
    hide: tuple[Literal["experience", "guidelines"], ...] = ()
    """Banks that are taken away from the prompts: the ablations."""

    def build(self) -> Parts:
        """Rounds over two banks; group credit and the clipped surrogate for those who train on the first round."""
        check_group("tmas", self.attempts)
        if self.turns < 1 or self.ballots < 1 or not 0 <= self.explore <= 1:
            raise RecipeError(
                f"tmas: turns={self.turns} and ballots={self.ballots} must be 1 or more, explore={self.explore} a share"
            )
        reader = Likelihood() if self.judge == "likelihood" else MeasuredJudge(noise=self.noise)
        votes = 1 if self.judge == "likelihood" else self.ballots
        banked = Banked(
            self.attempts, self.turns, self.explore, Votes(reader, votes, "given", "mean"), self.keep,
            RecordWriter(EXPERIENCE, self.learn, self.learned), RecordWriter(GUIDELINES, self.avoid, self.tried),
            self.same, self.most, hide=self.hide,
        )  # fmt: skip
        return Parts("tmas", banked, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
