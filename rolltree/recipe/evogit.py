"""EvoGit: decentralised evolution on a commit graph (BillHuang2001/evogit)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.methods.evogit import EvoGitRules
from rolltree.generate.methods.evogit_answers import PopulationOfAnswers
from rolltree.generate.search.attempts import OperatorTexts
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class EvoGitRecipe:
    """A population of answers, edited one by one and merged in pairs; a judge that compares two decides who stays.

    No answer has a score. Rules of replacement are those of the released code: an edit takes its parent's place where
    it is preferred or the same, a merge the places of both where it is preferred to both, and only what is not made of
    one another is merged; a round without such a pair edits instead (reconstructed). Individuals are answers instead of
    commits, and a merge is written with the other in sight instead of resolving hunks by chance; texts, and the vote at
    the end in place of a person's choice, are reconstructed. The judge is the policy's likelihood in both orders;
    `judge="measured"` is one of a known accuracy.
    """

    card: ClassVar[Card] = Card(
        "evogit", "Evolution on a commit graph", "EvoGit", 2025,
        "two case studies without numbers: a web application and a meta-solver for bin packing",
        ("generate", "filter", "replay"), "best_of_n",
        Evidence("mean value", "the same edits without merges on separable landscapes",
                 check="studies.search.evogit:merges", seeds=5),
        counter=Counter("budget/judge_calls"),
    )  # fmt: skip
    population: int = 8
    """Answers that live side by side (16 in the released code)."""
    generations: int = 6
    """Rounds in which all are edited, or merged (120 in the released code)."""
    every: int = 3
    """Each so many-th round merges; 0 = none does."""
    judge: Literal["likelihood", "measured"] = "likelihood"
    """Who compares: the policy by the likelihood of the text, or a stand-in of known quality that sees the outcome."""
    accuracy: float = 0.65
    """Of the measured judge, between a right and a wrong answer."""
    mutate: str = "\n[{answer}] {prompt}"
    """Asks for an edit; {prompt}, {answer} and {references} are filled in."""
    merge: str = "\n[{answer}; {references}] {prompt}"
    """Asks for a merge."""

    def build(self) -> Parts:
        """A population."""
        check_group("evogit", self.population)
        if self.generations < 0 or self.every < 0:
            raise RecipeError(f"evogit: generations={self.generations} and every={self.every} count rounds; 0 or more")
        reader = Likelihood() if self.judge == "likelihood" else MeasuredJudge(accuracy=self.accuracy)
        return search_parts("evogit", PopulationOfAnswers(
            self.generations, EvoGitRules(self.population, self.every),
            OperatorTexts({"mutate": self.mutate, "merge": self.merge}), Votes(reader, 1, "swapped"),
        ))  # fmt: skip
