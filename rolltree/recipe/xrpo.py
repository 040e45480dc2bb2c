"""XRPO: targeted exploration and exploitation (arXiv 2510.06672)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.xrpo import Xrpo
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class XrpoRecipe:
    """Rollouts by expected narrowing of each prompt's interval, examples for dead prompts, rare right answers raised.

    Rollouts drawn after examples are trained under the bare prompt against the distribution that sampled them. The
    bonus's form and the retriever are reconstructed.
    """

    card: ClassVar[Card] = Card(
        "xrpo", "Targeted exploration and exploitation", "2510.06672", 2025,
        "up to +4 points pass@1 and +6 cons@32 over GRPO and GSPO; up to 2.7 times faster convergence",
        ("control", "generate", "credit"), "grpo",
        Evidence("mean squared error of group means", "uniform width", "lower", 0.0005, seeds=5,
                 check="studies.prompts.checks:xrpo"),
        counter=Counter("rollout/group_size_spread"),
    )  # fmt: skip
    group: int = 8
    base: int = 0
    phases: int = 2
    """Rounds in which the rest is handed out."""
    explore: float = 0.1
    """λ of the bonus."""
    examples: int = 2
    """Solved examples for prompts whose rollouts all failed; 0 = none."""
    seeded: int = 2
    """Rollouts with examples for such a prompt."""
    novelty: float = 2.5
    """λ: how strongly a right answer is raised for being unlikely."""
    novelty_clip: float = 0.5
    """κ: largest rise, as a share of the advantage."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Phased allocation and novelty on the group's advantages."""
        check_group("xrpo", self.group)
        return Parts(
            "xrpo", Independent(self.group), load_credit("novelty", weight=self.novelty, clip=self.novelty_clip),
            load_objective("context_corrected", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Xrpo(
                base=self.base, phases=self.phases, explore=self.explore, examples=self.examples, seeded=self.seeded
            ),
        )  # fmt: skip
