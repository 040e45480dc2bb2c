"""Success is worth more the sooner it comes: 1 − slow · t/H of the outcome (Polychromic PPO, arXiv 2509.25424)."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.filter.groups import live_leaves
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class Brisk:
    """Takes `slow` · (tokens written / most that may be written) off each outcome, in proportion to it.

    Where a turn is one token (the grid) this is the paper's share of the horizon.
    """

    slow: float = 0.5

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape the outcome of every live leaf; idempotent."""
        for leaf in live_leaves(tree):
            written = sum(len(n) for n in tree.path(leaf) if n.trainable)
            outcome = leaf.scores.setdefault("outcome", leaf.scores["reward"])
            leaf.scores["reward"] -= leaf.scores.get("brisk", 0.0)
            leaf.scores["brisk"] = -self.slow * min(written / limit, 1.0) * outcome
            leaf.scores["reward"] += leaf.scores["brisk"]
