"""SAGE: a skill library inside each rollout of a chain of tasks (arXiv 2512.17102)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class SageSkills:
    """Chains of tasks; a routine that one saved and a later one used with success pays both, beside their outcomes.

    The library is the rollout's own, so the second tasks of a group are compared though their prompts differ, as
    published. Advantages are around the mean at the same place of the chain, not divided by a deviation; the update is
    on-policy, without a clip or a KL. Where it differs: the first task stays in the context of the second, and there is
    no supervised start. The embedded policy has never seen a routine (the expert's play of `chained:calculator` is a
    corpus), and without that start the paper ends at 25.6 instead of 60.7 scenarios, so the evidence is an exact chain.
    """

    card: ClassVar[Card] = Card(
        "sage_skills", "Skill library in chained tasks", "2512.17102", 2025,
        "AppWorld scenarios 60.7 against 51.8 for GRPO without a library, with 26 % fewer steps and 59 % fewer tokens",
        ("generate", "credit"), "grpo",
        Evidence("second tasks solved", "the same chains paid by their outcomes alone", "higher", 0.02, seeds=5,
                 check="studies.exact.skills:sage_skills"),
        task="chained:calculator", counter=Counter("reward/part/uses"),
    )  # fmt: skip
    group: int = 8
    """Chains of each pair of tasks."""
    bonus: float = 1.0
    """What using a saved routine with success earns; having saved it earns as much."""

    def build(self) -> Parts:
        """Independent chains, the chain's credit, likelihood ratio one."""
        check_group("sage_skills", self.group)
        return Parts(
            "sage_skills", Independent(self.group), load_credit("skill_chain", bonus=self.bonus),
            load_objective("reinforce"), averaging="token",
        )  # fmt: skip
