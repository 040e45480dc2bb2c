"""VADE: variance-aware dynamic sampling (arXiv 2511.18902)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.vade import Vade
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class VadeRecipe:
    """GRPO on the prompts of a pool whose outcome is believed to be least certain; nothing is sampled twice or thrown
    away. What is reconstructed stands at the control.
    """

    card: ClassVar[Card] = Card(
        "vade", "Variance-aware dynamic sampling", "2511.18902", 2025,
        "beats GRPO, GSPO and filtered sampling on multimodal reasoning without extra rollouts", ("control",), "grpo",
        Evidence("share of groups with variance", "uniform from the same pool", "higher", 0.05, seeds=5,
                 check="studies.prompts.checks:vade"),
        counter=Counter("budget/revisited"),
    )  # fmt: skip
    group: int = 8
    pool: int = 256
    """Candidate prompts."""
    visit: float = 0.9
    """What is left of a prompt's evidence when it is visited again."""
    idle: float = 0.995
    """What is left of all evidence after a step."""
    thompson: bool = True
    """Whether prompts are drawn by chance from what is believed, instead of the best guess."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts."""
        check_group("vade", self.group)
        return Parts(
            "vade", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Vade(self.pool, visit=self.visit, idle=self.idle, thompson=self.thompson),
        )  # fmt: skip
