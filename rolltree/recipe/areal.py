"""Decoupled PPO as AReaL trains on stale rollouts (arXiv 2505.24298)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class AReaL:
    """The policy that centres the clip is not the policy that sampled: three policies, two ratios.

    The clip bounds what the updates of a step do; a constant weight, proximal over sampling policy and masked above
    `high`, corrects for what happened since. `prox="loglinear"` saves the forward pass that recomputes the proximal
    policy (A-3PO, 2512.06547). With a single update the clip could never act: a step has four, as the paper's, and
    `policy/clip_high` counts what the clip stopped. Current code leaves the weight out by default. Running ahead is the
    trainer's: `train.staleness`, the paper's η.
    """

    card: ClassVar[Card] = Card(
        "areal", "Decoupled PPO for asynchronous training", "2505.24298", 2025,
        "AIME 2024 stays at 41 to 42 points up to a staleness of 8, where PPO against the sampling policy falls to 36",
        ("objective",), "dual_clip",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        needs=(Need.schedule("areal"),), counter=Counter("policy/is_weight_max", rest=1.0, least=0.01),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    prox: Literal["old", "loglinear"] = "old"
    """The proximal policy: recomputed at the start of the step (old), or interpolated without a forward pass
    (loglinear)."""
    bound: Literal["mask", "truncate", "none"] = "mask"
    """What happens to weights outside of the bounds."""
    high: float = 5.0
    """Largest weight between the proximal and the sampling policy."""
    updates: int = 4
    """Updates a step, so that the clip can act."""

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, decoupled surrogate, token averaging."""
        check_group("areal", self.group)
        return Parts(
            "areal", Independent(self.group), load_credit("grpo"),
            load_objective(
                "decoupled", clip_low=self.clip, clip_high=self.clip, prox=self.prox, bound=self.bound, high=self.high
            ),
            averaging="token", optim={"minibatches": self.updates},
        )  # fmt: skip
