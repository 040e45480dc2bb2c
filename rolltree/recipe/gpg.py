"""GPG: group policy gradient (arXiv 2504.02546)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Gpg:
    """REINFORCE with a group baseline and nothing else: no ratio, no clip, no deviation, no reference.

    Groups without a signal are taken out of the average, so the step does not shrink as prompts are solved. `scale`
    divides by the group's deviation again, as the paper's ablation does.
    """

    card: ClassVar[Card] = Card(
        "gpg", "Group policy gradient", "2504.02546", 2025,
        "GRPO's accuracy or better on mathematics and vision tasks without a surrogate, a critic, a reference or a KL",
        ("credit", "objective"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    scale: bool = False
    """Whether advantages are divided by the group's standard deviation."""

    def build(self) -> Parts:
        """Independent rollouts, outcomes around the group mean, policy gradient over the groups with a signal."""
        check_group("gpg", self.group)
        return Parts(
            "gpg", Independent(self.group), load_credit("grpo" if self.scale else "dr_grpo"),
            load_objective("gpg"), averaging="token",
        )  # fmt: skip
