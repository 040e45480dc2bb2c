"""RTV and PDR: recursive tournament voting, and refinement by distilled attempts (arXiv 2604.16529)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.votes import Votes
from rolltree.generate.waves import Digests, Waves
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Rtv:
    """Attempts are digested, compared in a tournament of votes, and the winners' digests are shown to a fresh wave.

    `rolltree rollout rtv` chooses with a frozen policy; the answer stands in each tree's notes, the second wave in a
    side tree of the same forest. Fresh attempts carry nothing over but text. The judge is the policy's own likelihood
    of the digest, which does not depend on the order; `judge="measured"` is one of a known accuracy. How many digests
    are kept is not published (2 is reconstructed), nor are byes and ties (one alone passes; chance among the tied). A
    judge of likelihood says the same at every vote, so more votes help only judges that draw. Its evidence asks what
    the second wave is worth; that the tournament chooses as often right as its closed form says is a test.
    """

    card: ClassVar[Card] = Card(
        "rtv", "Recursive tournament voting with refinement", "2604.16529", 2026,
        "SWE-Bench Verified 70.9 to 77.6 and Terminal-Bench 46.9 to 59.1 (Claude 4.5 Opus), 5 to 12 points by votes",
        ("generate", "filter"), "grpo",
        Evidence("right answers chosen", "one tournament of as many attempts", "higher", 0.02, seeds=5,
                 check="rolltree_papers.rtv.study:rtv"),
        counter=Counter("budget/role/again"),
    )  # fmt: skip
    attempts: int = 16
    """N: attempts of each wave."""
    match: int = 2
    """G: digests a judge reads at once."""
    ballots: int = 8
    """V: votes on each group."""
    keep: int = 2
    """K: winners whose digests the next wave sees."""
    waves: int = 2
    """1 = the tournament alone (RTV)."""
    judge: Literal["likelihood", "measured"] = "likelihood"
    """Who judges: the policy by the likelihood of the text, or a stand-in of known quality that sees the outcome."""
    accuracy: float = 0.65
    """Of the measured judge, between a right and a wrong attempt."""
    ask: str = ""
    """Asks for a digest: {prompt} and {text} are filled in; "" = an attempt stands for itself."""
    shown: str = "{digest}\n"
    """How a digest stands in front of the prompt."""

    def build(self) -> Parts:
        """Waves of attempts and tournaments; group credit and the clipped surrogate for those who train on it."""
        check_group("rtv", self.attempts)
        if self.waves not in (1, 2) or not 1 <= self.keep <= self.attempts:
            raise RecipeError(f"rtv: waves={self.waves} is 1 or 2, and keep={self.keep} of {self.attempts} attempts")
        reader = Likelihood() if self.judge == "likelihood" else MeasuredJudge(accuracy=self.accuracy)
        votes = 1 if self.judge == "likelihood" else self.ballots
        waves = Waves(self.attempts, self.match, self.keep, self.waves, Votes(reader, votes, "shuffled"),
                      Digests(self.ask, shown=self.shown))  # fmt: skip
        return Parts("rtv", waves, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
