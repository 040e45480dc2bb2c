"""Turns in segments: where the environment paid for a subgoal, the next turn begins another one."""

from __future__ import annotations

from dataclasses import dataclass, field

from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.strategy import TreeStrategy
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class SubgoalTurns:
    """Grows as `inner` does and marks each turn: score `switch` = 1 on the first and on those after a step reward.

    HiPER's policy writes KEEP or SWITCH and a subgoal before each action. A policy without that grammar has one span a
    turn, its action, and the boundaries are the environment's.
    """

    inner: TreeStrategy = field(default_factory=Independent)
    writes: frozenset[str] = frozenset({"turn:switch", "turn-note:spans"})

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's, and an environment that answers."""
        return self.inner.needs | {"turns"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then mark."""
        await self.inner.grow_tree(tree, hand)
        for node in tree:
            if not (node.trainable and len(node)):
                continue
            before = None if node.parent is None else tree[node.parent]
            begins = before is None or before.parent is None or before.scores.get("step_reward", 0.0) > 0
            node.scores["switch"] = float(begins)
            node.notes["spans"] = {"action": (0, len(node))}
