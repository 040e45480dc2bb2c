"""Two levels in one tree: several plans of a prompt, several executions of each (HiMAC, MetaAgent-X).

The plan is the beginning of the rollout, up to a boundary: a written first step, or the first turns in an environment.
It stands at level 1 under the actor "planner", so that credit can value it by what its executions came to.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rolltree.generate.hand import Hand
from rolltree.generate.turns import play, stretch
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class PlanExecute:
    """`plans` beginnings, each executed `executions` times; a plan that ends the rollout is its own execution.

    Where an environment answers, a plan is `turns` turns; elsewhere it ends after one of the strings `stop`. Executions
    are sampled from the policy after the plan; one policy plays both levels.
    """

    plans: int = 4
    executions: int = 4
    turns: int = 3
    stop: tuple[str, ...] = (",",)
    writes: frozenset[str] = frozenset({"level:1"})
    needs: frozenset[str] = frozenset()

    @property
    def leaves(self) -> int:
        """The most it makes of a prompt."""
        return self.plans * self.executions

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All plans at once, each executed as soon as it stands."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.plans):
                group.create_task(self._branch(tree, hand))

    async def _branch(self, tree: Tree, hand: Hand) -> None:
        here = await self._plan(tree, hand.as_actor("planner", level=1))
        if here is None or here.status != "open":
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(self.executions):
                group.create_task(play(hand, here))

    async def _plan(self, tree: Tree, hand: Hand) -> Node | None:
        """Where a plan ends; None where the budget has no leaf left."""
        here = tree.root
        for _ in range(self.turns if hand.interactive else 1):
            grown = await stretch(hand, here, stop=() if hand.interactive else self.stop)
            if not grown:
                return None if here is tree.root else here
            here = grown[0]
            if here.status != "open":
                break
        return here
