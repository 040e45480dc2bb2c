"""ARRoL: online rollout pruning (arXiv 2603.24840)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.arrol import Arrol
from rolltree.control.methods.arrol_survival import Rule
from rolltree.control.probe import Over
from rolltree.credit.registry import load_credit
from rolltree.filter.vote import WeighedVote
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class ArrolRecipe:
    """GRPO on the survivors of groups from which half of the rollouts were pruned in flight.

    Advantages are of survivors alone. `rule="signed"` mends the published rule where fewer than half of the rollouts
    are right. The head's posterior is also the weight of a rollout's vote: each group says what its frequent and its
    heavy answer are worth (`reward/part/vote_frequent`, `vote_heavy`). In the evidence's short run the head has a
    warm-up of a few steps instead of 20, and fewer bins, which few outcomes can fill. `budget/probe_pruned_tokens`
    counts what that cost.
    """

    card: ClassVar[Card] = Card(
        "arrol", "Online rollout pruning", "2603.24840", 2026,
        "+2.3 to +3.0 points over GRPO and DAPO at 1.6 to 1.7 times their speed (1B to 8B)",
        ("generate", "control"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6,
                 settings=("arrol:group=8", "arrol:warm=5", "arrol:bins=16")),
        counter=Counter("budget/probe_pruned"),
    )  # fmt: skip
    group: int = 16
    rule: Rule = "published"
    """"published", or "signed", which turns its direction where fewer than half of the rollouts are right."""
    over: Over = "group"
    """What rollouts are compared with: their group, all of a round (batch), or those seen lately (recent)."""
    tokens: int = 0
    """Where rollouts are judged; 0 = at 512, or at a quarter of the run's limit where that is less. Shorter ones
    are never pruned."""
    keep: float = 0.5
    """Share of the rollouts that go on."""
    target: float = 0.5
    """Chance of being right at which a rollout leans neither way."""
    pull: float = 0.5
    """How strongly a rollout's chance to survive leans against its chance of being right."""
    least: float = 0.1
    """Least chance of a rollout to survive."""
    most: float = 0.9
    """Largest chance of a rollout to survive."""
    warm: int = 20
    """Steps in which the head learns and nothing is pruned."""
    bins: int = 128
    """Bins of the calibration from scores to chances of being right."""
    forget: float = 1.0
    """What is left of the calibrator's counts after a step."""
    reweigh: bool = False
    """Whether an outcome counts by the inverse of its chance to survive."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Independent rollouts under a quality head's eyes, group credit, symmetric clip."""
        check_group("arrol", self.group)
        control = Arrol(
            self.rule, self.over, self.tokens, self.keep, self.target, self.pull, self.least, self.most, self.warm,
            self.bins, self.forget, self.reweigh,
        )  # fmt: skip
        return Parts(
            "arrol", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence", control=control,
            shapers=(WeighedVote(),),
        )  # fmt: skip
