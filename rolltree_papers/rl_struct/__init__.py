"""RL-Struct: rewards of several levels for structured output (arXiv 2512.00319)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite
from rolltree.filter.shaping import RECORD
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class RlStruct:
    """GRPO on keys, types, values and validity of a record, each rewarded by itself; values count only if it parses.

    Partial credit gives groups a variance long before one answer is right, so cheap levels are learned first. Weights
    are not published (1 each is reconstructed). The task's verifier must measure the parts, as `records` does: there
    structure is all or nothing, and nothing is measured of a text that does not parse.
    """

    card: ClassVar[Card] = Card(
        "rl_struct", "RL-Struct", "2512.00319", 2025,
        "89.7 % structural accuracy and 92.1 % valid JSON; syntax is learned before content", ("filter",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:records", seeds=6),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, composite reward, mean-and-deviation credit, clipped surrogate."""
        check_group("rl_struct", self.group)
        return Parts(
            "rl_struct", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(Composite(RECORD),),
        )  # fmt: skip
