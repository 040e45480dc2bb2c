"""RoRecomp: rollout response recomposition (arXiv 2509.25958)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.against import against
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.replay.buffer import Recall


@dataclass(frozen=True, slots=True)
class RoRecomp:
    """Advantages over the whole group; only its shortest right and longest wrong answers are trained on.

    No length enters the reward: which responses are seen makes the policy brief. What the share is taken of is
    reconstructed (of each kind, at least one). What is left aside waits in a queue: `compensate` is the share of a
    step's prompts whose places the oldest of it take, each once, under the ordinary clip against the distribution they
    were sampled from (`rollout/recalled_groups` counts them). That the share falls, from 0.3, is
    reconstructed; at a steady 0.5 all of it is taught. What has
    waited `window` steps is forgotten, so that no age is without bound.
    """

    card: ClassVar[Card] = Card(
        "rorecomp", "Rollout response recomposition", "2509.25958", 2025,
        "27.7 % shorter answers (zero RL) and 46.8 % fewer tool calls at better accuracy",
        ("filter", "replay", "credit"), "grpo",
        Evidence("eval/length", "grpo", "lower", 5.0, "regime:tails", seeds=6),
        counter=Counter("rollout/recalled_groups"),
    )  # fmt: skip
    group: int = 8
    share: float = 0.5
    """Of each kind that is trained on; the paper's is not clearly specified, 0.5 to 0.8 fits its reviews."""
    compensate: Knob = "0.3->0 over 200"
    """Share of a step's prompts whose places the oldest of what was left aside take."""
    window: int = 8
    """Steps after which what was left aside is not trained on any more."""
    clip: float = 0.2
    kl: float = 0.0

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, group credit on the selected leaves, clipped surrogate."""
        check_group("rorecomp", self.group)
        compensate = float(self.compensate)
        again = compensate > 0
        return Parts(
            "rorecomp", Independent(self.group), load_credit("recomposed", share=self.share, compensate=again),
            load_objective(
                "clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl,
                correction=against("sampled" if again else "old"),
            ),
            averaging="sequence", recall=Recall(compensate, self.window, "age") if again else None,
        )  # fmt: skip
