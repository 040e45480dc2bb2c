"""DOTS: difficulty-targeted online data selection (arXiv 2506.05316), without its rollout replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.dots import Dots
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class DotsRecipe:
    """GRPO on prompts predicted to be solved half the time.

    The other half of the paper, replaying earlier groups, is not part of this recipe. Predictions come from character
    trigrams and a fit to the references at hand, instead of a trained adapter on a language model's embeddings.
    """

    card: ClassVar[Card] = Card(
        "dots", "Difficulty-targeted selection", "2506.05316", 2025,
        "23 to 62 % less time to reach GRPO's score on six pairs of model and data set", ("control",), "grpo",
        Evidence("correlation of predicted and true pass rate", "each prompt's last seen rate", "higher", 0.05,
                 seeds=5, check="rolltree.lab.prompts.checks:dots"),
    )  # fmt: skip
    group: int = 8
    pool: int = 256
    references: int = 16
    every: int = 2
    target: float = 0.5
    tau: float = 1e-3
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts."""
        check_group("dots", self.group)
        return Parts(
            "dots", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Dots(
                self.pool, references=self.references, every=self.every, target=self.target, tau=self.tau
            ),
        )  # fmt: skip
