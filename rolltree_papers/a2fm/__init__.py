"""A2FM: when to answer at once, and when to use tools (arXiv 2510.12838)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.arms import ToolModes
from rolltree.credit.registry import load_credit
from rolltree.filter.modes import Adaptive
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.task.tagged import TAGS


@dataclass(frozen=True, slots=True)
class A2fm:
    """Forced rollouts of each mode and free ones; a mode that a question did not need takes from what a free one earns.

    A rollout says in its first tag whether it answers at once, thinks, or uses tools; forced ones are begun with a tag,
    which does not train. How often the arm that answers at once succeeds says how little more was needed. All compete
    in one group, as published, so the tag is learned from the free ones alone. Tags are for tasks `tagged:NAME`; with
    `tags=()` a rollout's mode is read off what it did, arms are told in words, and thought is not told from an answer
    at once. Where it differs: what a mode's template asks beside its tag is that tools are called in the last alone;
    routing is not fine-tuned first (the expert's play of `tagged:calculator` is a corpus); the judge is the task's
    verifier. Without such a start no rollout begins with a tag and none earns anything, so the evidence is an exact
    bandit over the three, against a fixed cost of 0.2 for whatever is not at once.
    """

    card: ClassVar[Card] = Card(
        "a2fm", "Adaptive policy optimisation of modes", "2510.12838", 2025,
        "right answers 45.2 % cheaper than by reasoning alone; 50.2 to 58.6 % answered at once for 0.9 points",
        ("control", "filter"), "grpo",
        Evidence("free rollouts that choose the cheapest mode which solves", "the same arms at a fixed cost",
                 "higher", 0.05, seeds=5, check="rolltree_papers.a2fm.study:a2fm"),
        task="tagged:calculator", needs=(Need.tags,), counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    """Free rollouts."""
    forced: int = 4
    """Rollouts of each forced arm."""
    alpha: float = 2.0
    """How the success of answers at once lowers what all else earns."""
    tags: tuple[str, ...] = TAGS
    """What answers at once, thought and tools begin with; () = modes without tags."""
    answering: int = 1
    """Environment steps of a rollout without tools: 1 where the answer is handed to the environment, else 0."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Arms then free, adaptive rewards, one group."""
        check_group("a2fm", self.group)
        return Parts(
            "a2fm", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=ToolModes(self.forced, self.forced, self.group, answering=self.answering,
                              tags=self.tags),
            shapers=(Adaptive(self.alpha, tagged=bool(self.tags)),),
        )  # fmt: skip
