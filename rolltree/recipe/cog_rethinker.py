"""Cog-Rethinker: dead prompts decomposed, reflected on, and learned directly (arXiv 2510.15979)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.cog_rethinker import CogRethinker
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class CogRethinkerRecipe:
    """DAPO's groups; where all rollouts fail, a chain of two rescues, whose right answers are fine-tuned on.

    Rescued answers are trained under the direct prompt and never enter their group's mean. Prompts that are dead after
    the chain are dropped. The instructions are English: the embedded policy does not read them, so it wants a chat
    model. λ, the widths and the texts are (reconstructed), and so is that imitation is averaged together with the group
    and what a rescue wrote is taken as it is, where the paper rewrites it for the direct prompt. A hard step costs up
    to three times the rollouts, so compare it with `dapo` at equal tokens. Its evidence is on simulated prompts and
    supposes what a rescue adds to a logit: N(1.5, 1.5²), a draw for each prompt and rescue. Of 1,000 rollouts it makes
    37 to 42 prompts teach, where `dapo` has 31 to 35 with other prompts; where a rescue adds nothing on average 26 to
    30, and fewer where it harms.
    """

    card: ClassVar[Card] = Card(
        "cog_rethinker", "Hierarchical metacognitive RL", "2510.15979", 2025,
        "better than five baselines on nine mathematics sets (Qwen2.5-1.5B/7B base), with more usable prompts a step",
        ("generate", "control", "credit"), "dapo",
        Evidence("hard prompts that teach per 1,000 rollouts, where a rescue adds N(1.5, 1.5²) to a logit",
                 "dapo, which asks other prompts", "higher", 1.0, seeds=5,
                 check="studies.prompts.rescue:cog_rethinker"),
        task="countdown", counter=Counter("budget/arm/decompose"),
    )  # fmt: skip
    group: int = 8
    weight: float = 0.1
    """λ: how much a rescued answer is imitated beside the group's own credit."""
    examples: int = 2
    """Solved examples that decomposition is shown."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    rounds: int = 4

    def build(self) -> Parts:
        """Independent rollouts, the rescue chain, mixed groups only, imitation of what it found, asymmetric clip."""
        check_group("cog_rethinker", self.group)
        return Parts(
            "cog_rethinker", Independent(self.group), load_credit("rescued", weight=self.weight),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="token",
            filters=(Mixed(),), rounds=self.rounds, control=CogRethinker(examples=self.examples),
        )  # fmt: skip
