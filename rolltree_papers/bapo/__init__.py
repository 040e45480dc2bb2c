"""BAPO: balanced policy optimisation with adaptive clipping (arXiv 2510.18927)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.against import Against, against
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Bapo:
    """Clip bounds are searched in every update until positive advantages carry their share of the loss.

    On stale or replayed rollouts negative advantages dominate and a fixed window cuts the rare good actions first. The
    ratio is against the distribution sampled from, as in the paper's off-policy runs; `against="old"` leaves only the
    updates of a step to it. With both at one update on fresh rollouts every ratio is 1 and BAPO is GRPO. `target` is a
    share of the total, as in the paper; the released configuration states positives over negatives.
    """

    card: ClassVar[Card] = Card(
        "bapo", "Balanced policy optimisation with adaptive clipping", "2510.18927", 2025,
        "steadier entropy and gradients on stale rollouts; AIME 2024/25 at 70.8/62.5 (7B) and 87.1/80.0 (32B)",
        ("objective",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:stale8", seeds=6),
        counter=Counter("policy/bounds_moved"),
    )  # fmt: skip
    group: int = 8
    target: float = 0.5
    """Share of the loss that positive advantages are to carry."""
    low: tuple[float, float] = (0.6, 0.9)
    """Range of the lower bound, a ratio."""
    high: tuple[float, float] = (1.2, 3.0)
    """Range of the upper bound, a ratio."""
    dual: float = 3.0
    against: Against = "sampled"

    def build(self) -> Parts:
        """Independent rollouts, mean-and-deviation credit, searched bounds with a dual clip, token averaging."""
        check_group("bapo", self.group)
        return Parts(
            "bapo", Independent(self.group), load_credit("grpo"),
            load_objective(
                "bapo", target=self.target, low_start=self.low[0], low_end=self.low[1], high_start=self.high[0],
                high_end=self.high[1], dual=self.dual, correction=against(self.against),
            ),
            averaging="token",
        )  # fmt: skip
