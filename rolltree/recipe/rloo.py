"""RLOO: REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024, Back to Basics, arXiv 2402.14740)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, check_group


@dataclass(frozen=True, slots=True)
class Rloo:
    """The baseline of each response is the mean outcome of the others: unbiased, and no scale to tune.

    The paper treats a whole response as one action, so a response's log-prob is the sum of its tokens' and is not
    divided by its length: averaging over a fixed length differs from it by a constant only. It also puts
    −β·KL into the outcome; here `kl` is a penalty of the objective (estimator k3).
    """

    card: ClassVar[Card] = Card(
        "rloo", "REINFORCE leave-one-out", "2402.14740", 2024,
        "plain REINFORCE with a leave-one-out baseline beats PPO at less cost", ("credit", "objective"), "grpo",
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    kl: float = 0.0
    clip: float = 0.2
    """Binds only when a step makes several updates; the paper makes one."""

    def build(self) -> Parts:
        """Independent rollouts, leave-one-out credit, clipped surrogate, sums over a response's tokens."""
        check_group("rloo", self.group)
        return Parts(
            "rloo", Independent(self.group), load_credit("rloo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="fixed",
        )  # fmt: skip
