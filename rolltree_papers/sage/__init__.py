"""SAGE: self-abstraction from grounded experience (arXiv 2511.05931)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.waves import Digests, Waves
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts


@dataclass(frozen=True, slots=True)
class Sage:
    """An attempt, a plan abstracted from it, and a fresh attempt with the plan in sight; the second one is submitted.

    It costs two rollouts and a plan, so it is to be held against the better of two attempts, and against the share of
    first attempts that were right and second ones that are not: `reward/regressed`, and `regressed` in the report of
    `rolltree solve`. Where that loses more than `mended` gains, it harms. No verdict enters the plan, and there is one
    iteration, as in the headline (reconstructed). `ask` asks for the plan; without it the whole attempt is shown.
    """

    card: ClassVar[Card] = Card(
        "sage", "Self-abstraction from grounded experience", "2511.05931", 2025,
        "SWE-Bench Verified up by 7.2 % relative (GPT-5, Mini-SWE-Agent)", ("generate",), "rtv",
        Evidence("right answers submitted", "the surer of two attempts", "higher", 0.02, seeds=5,
                 check="rolltree_papers.sage.study:sage"),
        counter=Counter("budget/role/again"),
    )  # fmt: skip
    ask: str = ""
    """Asks for the plan: {prompt} and {text} are filled in; "" = the attempt stands for itself."""
    shown: str = "{digest}\n"
    """How the plan stands in front of the prompt."""
    plan_tokens: int = 64
    """Most tokens of a plan."""

    def build(self) -> Parts:
        """Two waves of one attempt; a credit of the batch for those who train on the first: a group of one has none."""
        waves = Waves(1, keep=1, judge=Confidence(), digests=Digests(self.ask, (), self.plan_tokens, self.shown))
        return Parts("sage", waves, load_credit("reinforce_pp"), load_objective("clipped"), averaging="sequence")
