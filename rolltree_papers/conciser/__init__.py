"""ConciseR: length rewarded only where a prompt is solved (arXiv 2505.21178)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed, live_leaves
from rolltree.filter.lengths import written
from rolltree.filter.shaping import RewardError
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.tree import Tree

# Brevity paid for where a prompt is solved.


@dataclass(frozen=True, slots=True)
class Brevity:
    """Adds weight × (1 − length / most) to the outcomes of a group all of whose live leaves are right (ConciseR, arXiv
    2505.21178, stage two; the form of what is left is reconstructed).

    Groups that were solved and had no gradient learn brevity; all others never pay for it. Divided by a group's
    deviation, a difference of one token would become a unit advantage: prefer a credit that only centres. What the
    verifier said stays in `outcome`. Idempotent.
    """

    weight: float = 0.2
    """What a right answer of no tokens would earn on top."""
    most: int = 1024
    """Tokens of the policy at which nothing is earned for being short."""
    correct: float = 0.5
    """A larger outcome is right."""

    def __post_init__(self) -> None:
        if self.most < 1:
            raise RewardError(f"brevity: give a length of at least 1 token, got {self.most}")

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape a solved group; `limit` is not used."""
        leaves = live_leaves(tree)
        for leaf in leaves:
            leaf.scores.setdefault("outcome", leaf.scores["reward"])
        solved = all(leaf.scores["outcome"] > self.correct for leaf in leaves)
        for leaf in leaves:
            spare = 1 - written(tree, leaf) / self.most
            leaf.scores["reward"] = leaf.scores["outcome"] + self.weight * spare * solved


@dataclass(frozen=True, slots=True)
class ConciseR:
    """Stage 1 learns to be right on mixed groups; stage 2 pays for brevity where ALL rollouts of a prompt are right.

    Groups that were solved and had no gradient are those that learn brevity, so hard prompts never pay for it. The
    stages follow each other (that the first takes 60 % of a run is reconstructed); `stage=2` alone suits a policy that
    already solves some prompts, as in the evidence. The form λ (1 − length / limit) is reconstructed. Centred, not
    divided by the deviation: a difference of one token would become a unit advantage. Stage 1's entropy bonus is left
    out.
    """

    card: ClassVar[Card] = Card(
        "conciser", "ConciseR", "2505.21178", 2025,
        "shorter answers at equal or better accuracy (56.1 against 55.3 after stage 1, Qwen2.5-Math-7B)",
        ("filter", "control"), "dr_grpo",
        Evidence("eval/length", "dr_grpo", "lower", 5.0, "regime:tails", seeds=6,
                 settings=("conciser:limit=64", "conciser:stage=2", "conciser:clip_high=0.2")),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    stage: Literal[1, 2] | str = "1, 2 at 60%"
    """1 learns to be right, 2 pays for brevity where all rollouts of a prompt are right."""
    weight: float = 0.2
    """λ: reward of saying nothing at all where all are right."""
    limit: int = 48
    """Tokens at which the reward of brevity is 0: what long answers take, at most the run's limit."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    rounds: int = 4
    """Most rounds of sampling in a step of stage 1."""

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, the length term in stage 2, mean-centred credit, asymmetric clip."""
        check_group("conciser", self.group)
        if self.stage not in (1, 2):
            raise RecipeError(f"conciser: there is no stage={self.stage}; give 1 or 2")
        first = self.stage == 1
        return Parts(
            "conciser", Independent(self.group), load_credit("dr_grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="fixed",
            filters=(Mixed(),) if first else (), rounds=self.rounds if first else 1,
            shapers=() if first else (Brevity(self.weight, self.limit),),
        )  # fmt: skip
