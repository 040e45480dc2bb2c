"""D3S: dynamic dual-level down-sampling (arXiv 2509.22115)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class D3s:
    """Trained on are the rollouts of a step whose advantages vary most, and of these the tokens with the largest |A| H.

    Selection is over the whole step: within a group normalised advantages already have variance 1. Both shares grow
    over training, because a small fixed one overfits; the ends and the length of the ramps were not found and are
    reconstructed, so that about a sixth of a run's tokens are trained on, as claimed (a run of the evidence has some 40
    steps, and its ramps are as long). Each update of a step weighs as much as the others, whatever of it was selected.
    `budget/trained` counts what was selected. At an equal budget of decoded tokens the saving in trained tokens does
    not show: give `rolltree compare --axis trained` for that.
    """

    card: ClassVar[Card] = Card(
        "d3s", "Dynamic dual-level down-sampling", "2509.22115", 2025,
        "pass@1 and pass@8 34.3 and 56.8 against 29.8 and 53.1 (Qwen2.5-Math-7B) with a fifth of the tokens trained",
        ("filter", "credit"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6,
                 settings=("d3s:leaves=0.25->0.75 over 40", "d3s:tokens=0.2->0.4 over 40")),
        counter=Counter("rollout/dropped/no credit"),
    )  # fmt: skip
    group: int = 8
    leaves: Knob = "0.25->0.75 over 100"
    """Share of a step's rollouts that are trained on."""
    tokens: Knob = "0.2->0.4 over 100"
    """Share of their tokens that are trained on."""
    clip: float = 0.2
    kl: float = 0.0

    @at_start
    def build(self) -> Parts:
        """Independent rollouts with entropies, down-sampled group credit, clipped surrogate."""
        check_group("d3s", self.group)
        return Parts(
            "d3s", Independent(self.group, want=frozenset({"entropy"})),
            load_credit("downsampled", leaves=self.leaves, tokens=self.tokens),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
        )  # fmt: skip
