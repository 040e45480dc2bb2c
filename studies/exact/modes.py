"""When to call a tool: a policy with one bit for each kind of question, rewarded and credited by the real parts."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.filter.modes import calls
from rolltree.tree import Tree

STEPS, RATE, FORCE, FREELY = 300, 0.5, 4, 8

BY_REWARD = "by reward: own, at a fixed cost, outcome alone"


@dataclass(frozen=True, slots=True)
class Cost:
    """Every call costs the same, and so does thought: the plain way to say that neither is free."""

    cost: float = 0.2

    def __call__(self, tree: Tree, limit: int) -> None:
        """Take it off; `limit` is not used."""
        for leaf in tree.leaves():
            leaf.scores["reward"] -= self.cost * (calls(tree, leaf) > 0 or leaf.scores.get("mode", 0.0) > 0)
