"""SCALER: environments whose difficulty follows the policy (arXiv 2601.04809)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.scaler import Scaler
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class ScalerRecipe:
    """GRPO on instances made to order at the level where the policy is right half the time.

    The paper's environments are synthesised from programming problems with up to 100 levels each; here they are the
    tasks and levels of the stream, so it wants one that mixes them (`mixed:arithmetic`). On a task of one level it is
    GRPO. An environment that makes room is only seen to where others wait for its place: `active` must stay below
    their number, and a prompt's order says where its environment stands.
    """

    card: ClassVar[Card] = Card(
        "scaler", "Difficulty that follows the policy", "2601.04809", 2026,
        "40.2 points on average (Qwen3-1.7B-Base) where static data sets give 38.9 to 39.1", ("control", "generate"),
        "grpo",
        Evidence("share of groups with variance while skill grows", "levels drawn evenly", "higher", 0.05, seeds=5,
                 check="studies.prompts.levels:scaler"),
        counter=Counter("budget/other_levels"),
    )  # fmt: skip
    group: int = 8
    active: int = 0
    """Environments that supply prompts; 0 = half of those there are (64 of 2,739 in the paper)."""
    target: float = 0.5
    """Pass rate that the level is steered to."""
    gain: float = 2.0
    """How far the level moves with the distance from the target."""
    slope: float | None = 0.0
    """Progress per visit at or below which it makes room; None = one that rests at the target stays, as it should
    where the policy's skill has."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts."""
        check_group("scaler", self.group)
        return Parts(
            "scaler", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Scaler(self.active, target=self.target, gain=self.gain, slope=self.slope),
        )  # fmt: skip
