"""e1: adaptive effort control (arXiv 2510.27042)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.e1 import EffortLevels
from rolltree.credit.registry import load_credit
from rolltree.filter.effort import WithinEffort
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class E1:
    """GRPO in which a right answer counts only if it is no longer than the asked effort times the group's mean length.

    The mean is re-measured each step, so pressure never needs retuning; `floor` keeps it from shrinking to nothing. The
    range of efforts is reconstructed. Its evidence fixes r = 1 and does not say it, where the policy chooses its own
    effort: what is measured is the gate, not the dial. Asked for an effort that the policy obeys already, all of a
    group are as long, and hardly any is shorter than a part of their mean.
    """

    card: ClassVar[Card] = Card(
        "e1", "Adaptive effort control", "2510.27042", 2025,
        "two to three times shorter reasoning at equal or better accuracy (1.5B to 32B)", ("control", "filter"), "grpo",
        Evidence("eval/length", "grpo", "lower", 5.0, "regime:tails", seeds=6,
                 settings=("e1:least=1", "e1:most=1", "e1:template=")),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    least: float = 0.2
    """Smallest effort that is asked for."""
    most: float = 1.0
    """Largest effort that is asked for."""
    template: str = "effort {effort:.1f}\n"
    """What stands in front of the prompt; "" = the effort is not said."""
    column: str = ""
    """Where items ask for an effort themselves: the column that holds it, a number above 0, up to 1."""
    floor: float = 1.0
    """Shortest mean length that the effort is multiplied with."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Prompts that ask for an effort, and the gate on length."""
        check_group("e1", self.group)
        return Parts(
            "e1", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=EffortLevels(self.least, self.most, self.template, self.column),
            shapers=(WithinEffort(floor=self.floor),),
        )  # fmt: skip
