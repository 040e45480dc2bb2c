"""Dual-clip PPO (Ye et al. 2020, arXiv 1912.09729)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.against import Against, against
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class DualClip:
    """PPO whose loss on a bad action is bounded too: a ratio above `dual` no longer counts for more.

    Made for rollouts of many older policies, so the ratio is against the distribution sampled from. `dual=None` is
    plain PPO on stale data, which is what decoupled corrections are compared with. On fresh rollouts with one update
    all of it is GRPO.
    """

    card: ClassVar[Card] = Card(
        "dual_clip", "Dual-clip PPO", "1912.09729", 2020,
        "training converges under large deviations between policies where PPO's loss is unbounded below",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        counter=Counter("policy/clip_dual", least=1e-5),
    )  # fmt: skip
    group: int = 8
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual: float | None = 3.0
    against: Against = "sampled"

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, dual clip against the sampling distribution, token
        averaging."""
        check_group("dual_clip", self.group)
        return Parts(
            "dual_clip", Independent(self.group), load_credit("grpo"),
            load_objective(
                "clipped", clip_low=self.clip_low, clip_high=self.clip_high, dual=self.dual,
                correction=against(self.against),
            ),
            averaging="token",
        )  # fmt: skip
