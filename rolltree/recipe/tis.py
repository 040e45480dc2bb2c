"""Truncated importance sampling between trainer and sampler (Yao et al. 2025, OpenReview 8MHqvb4lK9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Tis:
    """GRPO whose credit is multiplied, action by action, by the ratio of trainer to sampler, at most `high`.

    The paper's gap is between two programs computing one policy; the weight does not ask where a gap comes from, so
    here it is held against stale rollouts. Truncation keeps every action and bounds what each can count.
    """

    card: ClassVar[Card] = Card(
        "tis", "Truncated importance sampling", "openreview:8MHqvb4lK9", 2025,
        "rollouts in 8-bit numbers train as well as rollouts in bf16",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        needs=(Need.staleness,), counter=Counter("policy/is_weight_bounded"),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    high: float = 2.0
    """Largest ratio of trainer to sampler that multiplies an action's credit."""

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, truncated weights, clipped surrogate, token averaging."""
        from rolltree.objective.correction import ImportanceWeight

        check_group("tis", self.group)
        return Parts(
            "tis", Independent(self.group), load_credit("grpo"),
            load_objective(
                "clipped", clip_low=self.clip, clip_high=self.clip,
                correction=ImportanceWeight("token", "truncate", high=self.high),
            ),
            averaging="token",
        )  # fmt: skip
