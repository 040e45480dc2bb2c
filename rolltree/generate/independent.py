"""n independent rollouts of a prompt: the flat group, a tree of depth one (deeper where an environment answers)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rolltree.generate.hand import Hand
from rolltree.generate.turns import lacks_outcome, play
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class Independent:
    """Plays `n` branches at once, or as many as the budget has leaves for; each leaf is verified as it finishes."""

    n: int = 8
    verify: bool = True
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Play n branches from the root at once."""
        n = int(min(self.n, hand.budget.remaining("leaves")))
        async with asyncio.TaskGroup() as group:
            for _ in range(n):
                group.create_task(play(hand, tree.root, verify=self.verify))


async def verify_all(tree: Tree, hand: Hand) -> None:
    """Verify every finished leaf that has no outcome yet."""
    async with asyncio.TaskGroup() as group:
        for leaf in tree.leaves():
            if lacks_outcome(leaf):
                group.create_task(hand.verify(leaf))
