"""MAXS: meta-adaptive exploration by looking a few steps ahead (arXiv 2601.09259)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.methods.maxs import Foresight, LookAheadSteps
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class Maxs:
    """Every step is chosen among several by what a few steps behind each look like, without reward or second model.

    Rewards, weights and constants are the paper's. A foresight probability is the mean per token, because a product
    favours short steps; so is the probability of a step (reconstructed), and before the first step F is 0. The
    normalised rewards of four candidates differ little, so looking ahead may end at the first step: the events say at
    which variance. Little variance is also what confident repetition has.
    """

    card: ClassVar[Card] = Card(
        "maxs", "Meta-adaptive exploration", "2601.09259", 2026,
        "63.46 against 57.04 by trees of thoughts with a 65th of the tokens (MiMo-VL-7B, five sets)",
        ("generate", "control"), "best_of_n",
        Evidence("steps off the trap", "foresight without the variance terms", least=0.02, seeds=10,
                 check="studies.search.foresight:traps"),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    answers: int = 1
    """Answers written so; several are voted on."""
    ways: int = 4
    """M: candidates for a step."""
    ahead: int = 4
    """N: steps looked at behind each."""
    most_steps: int = 13
    """Most steps that are chosen."""
    tau: float = 0.6
    """Temperature of rewards, of their normalisation and of the choice."""
    alpha: float = 0.3
    """Weight of little variance of the steps' log-probs."""
    beta: float = 0.2
    """Weight of little variance of their differences."""
    delta: float = 0.002
    """Variance of the rewards at which looking ahead ends; a negative number = never."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing. In an environment a step is a turn."""

    def build(self) -> Parts:
        """Foresight over steps."""
        if min(self.answers, self.ways, self.ahead) < 1 or self.tau <= 0 or self.alpha + self.beta > 1:
            raise RecipeError(
                f"maxs: answers={self.answers}, ways={self.ways} and ahead={self.ahead} are 1 or more, "
                f"tau={self.tau:g} is above 0, and alpha + beta = {self.alpha + self.beta:g} is at most 1"
            )
        rule = Foresight(self.tau, self.alpha, self.beta, self.delta)
        strategy = LookAheadSteps(self.answers, self.ways, self.ahead, self.most_steps, self.step, self.delimiter, rule)
        parts = search_parts("maxs", strategy)
        # A group of one has no credit of its own; the batch's has.
        return parts if self.answers > 1 else replace(parts, credit=load_credit("reinforce_pp"))
