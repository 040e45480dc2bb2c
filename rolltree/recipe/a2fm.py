"""A2FM: when to answer at once, and when to use tools (arXiv 2510.12838)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.arms import ToolModes
from rolltree.credit.registry import load_credit
from rolltree.filter.modes import Adaptive
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class A2fm:
    """Forced and free rollouts of each prompt; a tool that a question did not need takes from what a free one earns.

    How often the forced arm without tools succeeds says how little they were needed. The three compete in one group, as
    published. Of the paper's three modes two are here, with tools and without: a rollout's mode is read off what it
    did, not off a tag that it wrote, so long thought without tools is not told from an answer at once, and there is no
    routing to fine-tune first. The text that forces an arm is not trained on, and needs a model that heeds one: the
    evidence is an exact bandit.
    """

    card: ClassVar[Card] = Card(
        "a2fm", "Adaptive policy optimisation of modes", "2510.12838", 2025,
        "right answers 45.2 % cheaper than by reasoning alone; 50.2 to 58.6 % answered at once for 0.9 points",
        ("control", "filter"), "grpo",
        Evidence("free rollouts that choose the cheapest mode which solves", "the same arms paid by outcome alone",
                 "higher", 0.05, seeds=5, check="studies.exact.modes:a2fm"),
        task="calculator", counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    """Free rollouts."""
    forced: int = 4
    """Rollouts of either forced arm."""
    alpha: float = 2.0
    """How the success without tools lowers what tools earn."""
    answering: int = 1
    """Environment steps of a rollout without tools: 1 where the answer is handed to the environment, else 0."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Arms then free, adaptive rewards, one group."""
        check_group("a2fm", self.group)
        return Parts(
            "a2fm", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=ToolModes(self.forced, self.forced, self.group, answering=self.answering),
            shapers=(Adaptive(self.alpha),),
        )  # fmt: skip
