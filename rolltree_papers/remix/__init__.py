"""ReMix: off-policy rollouts mixed in and anchored (arXiv 2507.06892)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.replay.buffer import Recall


@dataclass(frozen=True, slots=True)
class Remix:
    """A share of every batch are rollouts of the last few steps, in a window around where the policy already is.

    Two passes over a batch, and a KL divided between the base and the policy one step back: λ of it falls by a tenth
    every twentieth of a run from its first quarter on. At half of it the base is replaced by the present policy, and
    fresh rollouts follow alone, with one pass, the ordinary clip and the new base's KL (in the paper λ falls every ten
    steps from step 50 on, and it switches at 50 or 100; at 50 its λ would never fall). Whole groups are recalled, so
    their statistics hold; `rollout/recalled_groups` counts them. `phase="mixed"` goes on as it began. A run of the
    evidence has some 50 steps, of which the mixed ones decode less, so it takes the paper's other pair at its scale:
    half of the tokens mixed, half fresh. Where a step has several updates, recalled groups are in the last ones. The
    paper keeps an entropy bonus, which is left out. The KL estimator is k2 in the mixed phase and k3, as in GRPO, in
    the fresh one. The paper counts rollouts, not steps, and so does its evidence.
    """

    card: ClassVar[Card] = Card(
        "remix", "Mixed off-policy gradient with reincarnation", "2507.06892", 2025,
        "52.1 points on average (1.5B) from 0.08 million rollouts, where PPO needs 0.23 million for 50.6",
        ("replay", "control", "objective"), "grpo",
        Evidence(
            "pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6,
            settings=("remix:mixing=1, 0.9 at 16, 0.8 at 19, 0.7 at 22, 0.6 at 25, 0.5 at 28",
                      "remix:phase=mixed, fresh at 31"),
        ),
        counter=Counter("rollout/recalled_groups"),
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
    mixing: Knob = "1, 0.9 at 25%, 0.8 at 30%, 0.7 at 35%, 0.6 at 40%, 0.5 at 45%"
    """λ: the base's share of the divergences."""
    phase: str = "mixed, fresh at 50%"
    """What a step is: "mixed", or "fresh" from where the base is replaced on."""

    @at_start
    def build(self) -> Parts:
        """Independent rollouts and recalled ones, mean-and-deviation credit, the centred window with two anchors."""
        check_group("remix", self.group)
        if self.phase not in ("mixed", "fresh"):
            raise RecipeError(f"remix: phase={self.phase!r} is neither 'mixed' nor 'fresh'")
        if self.phase == "fresh":
            return Parts(
                "remix", Independent(self.group), load_credit("grpo"),
                load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.beta), averaging="token",
                anchor="fresh",
            )  # fmt: skip
        return Parts(
            "remix", Independent(self.group), load_credit("grpo"),
            load_objective("remix", clip_low=self.clip, clip_high=self.clip, beta=self.beta, mixing=self.mixing),
            averaging="token", recall=Recall(self.share, self.window), anchor="mixed", optim={"epochs": self.passes},
        )  # fmt: skip
