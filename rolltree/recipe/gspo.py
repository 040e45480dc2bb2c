"""GSPO: sequence-level ratios and clipping (Zheng et al. 2025, arXiv 2507.18071)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, check_group


@dataclass(frozen=True, slots=True)
class Gspo:
    """One length-normalised ratio per response, clipped as a whole, because the outcome belongs to the whole.

    The window is three orders of magnitude narrower than GRPO's: the geometric mean of a response's ratios hardly
    moves. With a single update per step all ratios are one and GSPO is GRPO; the paper splits a batch into four.
    """

    card: ClassVar[Card] = Card(
        "gspo", "Group sequence policy optimisation", "2507.18071", 2025,
        "sequence-level clipping is more stable and more efficient than token-level, above all for mixtures of experts",
        ("objective",), "grpo",
        counter=Counter("policy/clip_low"),
    )  # fmt: skip
    group: int = 8
    clip_low: float = 3e-4
    clip_high: float = 4e-4
    updates: int = 4
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, path-level surrogate, several updates per step."""
        check_group("gspo", self.group)
        return Parts(
            "gspo", Independent(self.group), load_credit("grpo"),
            load_objective("gspo", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl),
            averaging="sequence", optim={"minibatches": self.updates},
        )  # fmt: skip
