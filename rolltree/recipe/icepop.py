"""IcePop: masked importance sampling (Ring-1T, arXiv 2510.18855)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class IcePop:
    """Actions on which trainer and sampler disagree too much, either way, are not trained on; the others are weighted.

    Masked actions still count in the average, so a mask is a smaller step and not a louder rest; `surviving` rescales.
    Held here against stale rollouts; the paper's gap is that of a mixture of experts between two engines.
    """

    card: ClassVar[Card] = Card(
        "icepop", "Masked importance sampling", "2510.18855", 2025,
        "the gap between engines stays bounded where plain GRPO on a trillion-parameter mixture of experts diverges",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        needs=(Need.staleness,), counter=Counter("policy/is_weight_bounded"),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    low: float = 0.5
    """Ratio of trainer to sampler below which an action is not trained on."""
    high: float = 5.0
    """Ratio of trainer to sampler above which an action is not trained on."""
    surviving: bool = False
    """Whether the actions that are trained on take over the weight of the others."""

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, masked weights, clipped surrogate, token averaging."""
        from rolltree.objective.correction import ImportanceWeight

        check_group("icepop", self.group)
        return Parts(
            "icepop", Independent(self.group), load_credit("grpo"),
            load_objective(
                "clipped", clip_low=self.clip, clip_high=self.clip,
                correction=ImportanceWeight(
                    "token", "mask", self.low, self.high, denominator="surviving" if self.surviving else "original"
                ),
            ),
            averaging="token",
        )  # fmt: skip
