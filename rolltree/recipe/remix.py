"""ReMix: off-policy rollouts mixed in and anchored (arXiv 2507.06892)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Evidence, Parts, check_group
from rolltree.replay.recall import Recall


@dataclass(frozen=True, slots=True)
class Remix:
    """A share of every batch are rollouts of the last few steps, in a window around where the policy already is.

    Two passes over a batch, a KL divided between the base and the policy one step back, and after `switch` steps the
    base is replaced by the present policy and only fresh rollouts follow. Whole groups are recalled, so their
    statistics hold. `switch=None` goes on as it began; the two passes and both anchors of the KL stay after it. The
    paper counts rollouts, not steps, and so does its evidence.
    """

    card: ClassVar[Card] = Card(
        "remix", "Mixed off-policy gradient with reincarnation", "2507.06892", 2025,
        "52.1 points on average (1.5B) from 0.08 million rollouts, where PPO needs 0.23 million for 50.6",
        ("replay", "control", "objective"), "grpo",
        Evidence("pass@1 area", "grpo", task="arithmetic", budget=120_000, settings=("optim.lr=2.5e-4",)),
    )  # fmt: skip
    group: int = 8
    share: float = 0.4
    """Of a batch's prompts whose rollouts come from earlier steps."""
    window: int = 2
    """Steps back from which rollouts are recalled."""
    passes: int = 2
    """Passes over the rollouts of a step."""
    clip: float = 0.2
    beta: float = 0.01
    """Of both divergences together; the paper's value is not public."""
    switch: int | None = 50
    """Steps after which only fresh rollouts are used; none when left out."""

    def build(self) -> Parts:
        """Independent rollouts and recalled ones, mean-and-deviation credit, the centred window with two anchors."""
        check_group("remix", self.group)
        return Parts(
            "remix", Independent(self.group), load_credit("grpo"),
            load_objective("remix", clip_low=self.clip, clip_high=self.clip, beta=self.beta, mixing=None),
            averaging="token", recall=Recall(self.share, self.window, self.switch), reanchor=self.switch,
            optim={"epochs": self.passes},
        )  # fmt: skip
