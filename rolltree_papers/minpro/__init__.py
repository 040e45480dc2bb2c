"""MinPRO: the prefix importance ratio, by its minimum (arXiv 2601.22718)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class MinPro:
    """An action counts by its own ratio times the smallest ratio before it: how reachable its prefix was.

    The exact weight is the product of all ratios up to the action, which explodes; the minimum is its stable stand-in.
    No code was released: `style`, `inclusive` and `cap` are the readings of the published text that differ. Later
    actions never weigh more than earlier ones would, so short paths are favoured.
    """

    card: ClassVar[Card] = Card(
        "minpro", "Minimum prefix ratio", "2601.22718", 2026,
        "more stable, and better at its peak, than GRPO, GSPO and CISPO under large off-policy drift",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        needs=(Need.staleness,), counter=Counter("policy/prefix_factor", rest=1.0),
    )  # fmt: skip
    group: int = 8
    style: Literal["cispo", "ppo"] = "cispo"
    """The surrogate around the ratio: CISPO's bounded weight, or PPO's clip."""
    high: float = 5.0
    """Largest weight ("cispo")."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    inclusive: bool = False
    """Whether an action's own ratio is among those whose smallest counts."""
    cap: bool = False
    """Whether the prefix factor is held at 1, so that a prefix never weighs up."""

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, prefix-weighted surrogate, token averaging."""
        check_group("minpro", self.group)
        return Parts(
            "minpro", Independent(self.group), load_credit("grpo"),
            load_objective(
                "minpro", style=self.style, high=self.high, clip_low=self.clip_low, clip_high=self.clip_high,
                inclusive=self.inclusive, cap=self.cap,
            ),
            averaging="token",
        )  # fmt: skip
