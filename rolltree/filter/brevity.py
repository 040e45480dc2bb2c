"""Brevity paid for where a prompt is solved."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.filter.groups import live_leaves
from rolltree.filter.lengths import written
from rolltree.filter.rewards import RewardError
from rolltree.tree import Tree


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
