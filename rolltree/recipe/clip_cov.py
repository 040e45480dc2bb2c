"""Clip-Cov: restrain a few actions that drive entropy down (arXiv 2505.22617)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.against import Against, against
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class ClipCov:
    """PPO's clip, and in every update a few actions of high covariance between advantage and log-prob get no gradient.

    That covariance is what lowers entropy, and few actions have most of it. `share` is of all actions, at least one an
    update; the band keeps outliers out. At nano scale one action is a far larger share than the paper's 2 in 10,000.
    """

    card: ClassVar[Card] = Card(
        "clip_cov", "Clip-Cov", "2505.22617", 2025,
        "entropy stays ten times above GRPO's late in training; +2.0 (7B) and +6.4 points (32B) on mathematics",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("policy/cov_selected"),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    share: float = 2e-4
    """Share of all actions that get no gradient; at least one an update."""
    low: float = 1.0
    """Least covariance of an action that may be chosen."""
    high: float = 5.0
    """Largest covariance of an action that may be chosen."""
    updates: int = 4
    against: Against = "old"

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, clip with a drawn few restrained, several updates."""
        check_group("clip_cov", self.group)
        return Parts(
            "clip_cov", Independent(self.group), load_credit("grpo"),
            load_objective(
                "clip_cov", clip_low=self.clip, clip_high=self.clip, share=self.share, low=self.low, high=self.high,
                correction=against(self.against),
            ),
            averaging="token", optim={"minibatches": self.updates},
        )  # fmt: skip
