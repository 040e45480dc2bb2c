"""M2PO: a bound on the second moment of the importance weights (arXiv 2510.01161)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group

UNBOUNDED = 1e9
"""A window that holds nothing."""


@dataclass(frozen=True, slots=True)
class M2po:
    """The actions furthest off-policy are left out until the mean squared log-ratio of the rest is small enough.

    Few actions are dropped even from very stale rollouts, where a clip would cut many that are informative. What stays
    is weighted with its whole ratio against the sampling distribution, without a window.
    """

    card: ClassVar[Card] = Card(
        "m2po", "Second-moment trust policy optimisation", "2510.01161", 2025,
        "training on rollouts 256 updates old matches on-policy training for 1.7B to 32B models",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        # A share of counted tokens: exactly 0 where none is rejected, and the paper rejects few.
        needs=(Need.staleness,), counter=Counter("policy/rejected", least=1e-6),
    )  # fmt: skip
    group: int = 8
    threshold: float = 0.04
    """Largest mean squared log-ratio of the actions that are trained on."""
    denominator: Literal["original", "surviving"] = "original"
    """What the loss is averaged over: all actions, or those that are left, as AReaL does."""

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, what M2PO leaves of the ratios, token averaging."""
        from rolltree.objective.correction import SecondMoment
        from rolltree.objective.ratio import Bypass

        check_group("m2po", self.group)
        return Parts(
            "m2po", Independent(self.group), load_credit("grpo"),
            load_objective(
                "clipped", clip_low=1.0, clip_high=UNBOUNDED,
                correction=(SecondMoment(self.threshold, self.denominator), Bypass()),
            ),
            averaging="token",
        )  # fmt: skip
