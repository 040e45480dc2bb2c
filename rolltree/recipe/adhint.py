"""ADHint: adaptive hints with difficulty priors (arXiv 2512.13095)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.adhint import ADHint
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class ADHintRecipe:
    """Hinted and unhinted rollouts in arms of their own, weighed by how much the hint helped; a hint that led to a bad
    rollout is not unlearned.

    The hint is the beginning of a right answer, longer where the unhinted half failed more, and trains: less the
    further its entropy is from what the policy wrote after it. The forms of both weights are (reconstructed). Judge it
    by unhinted accuracy. The evidence is a chain of digits of which only the whole is rewarded.
    """

    card: ClassVar[Card] = Card(
        "adhint", "Adaptive hints with difficulty priors", "2512.13095", 2025,
        "better pass@1 and avg@8 than earlier RL with hints, for text and images, in and out of domain",
        ("control", "credit", "objective"), "grpo",
        Evidence("unhinted success on hard chains", "half of the answer always shown", "higher", 0.02, seeds=5,
                 check="studies.prompts.chain:adhint"),
        counter=Counter("budget/arm/hint"),
    )  # fmt: skip
    group: int = 16
    least: float = 0.1
    """Smallest share of the answer that a hint shows."""
    most: float = 0.8
    """Largest share of the answer that a hint shows."""
    tau: float | None = 1.0
    """Scale of the entropy gap at which a hint token's credit fades; None = masking alone."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Two rounds of rollouts, arms compared within themselves, masked hints, clipped surrogate."""
        from rolltree.objective.hint import HintMask

        check_group("adhint", self.group, 4)
        return Parts(
            "adhint", Independent(self.group), load_credit("hinted"),
            load_objective(
                "clipped", clip_low=self.clip, clip_high=self.clip, correction=(HintMask(self.tau),)
            ),
            averaging="sequence", control=ADHint(self.least, self.most),
        )  # fmt: skip
