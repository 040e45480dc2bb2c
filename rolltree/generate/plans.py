"""Two levels in one tree: several plans of a prompt, several executions of each (HiMAC, MetaAgent-X).

The plan is the beginning of the rollout, up to a boundary: what the task calls a plan, a written first step, or the
first turns in an environment. It stands at level 1 under the actor "planner", so that credit can value it by what its
executions came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import play, stretch
from rolltree.task.grammar import Planned
from rolltree.tree import Node, Tree

GREEDY: SamplingOptions = {"temperature": 0.0}


@dataclass(frozen=True, slots=True)
class PlanExecute:
    """`plans` beginnings and their executions; a plan that ends the rollout is its own execution.

    Where an environment answers, a plan is `turns` turns, or those that the task calls its plan; elsewhere it ends
    after one of the strings `stop`. One policy plays both levels. In phase "both" every plan is executed `executions`
    times, sampled. In phase "macro" each is executed once, greedily, so that plans are compared under one executor; in
    phase "micro" the best of these is fixed and executed `executions` times, sampled, and these alone teach (HiMAC).
    """

    plans: int = 4
    executions: int = 4
    turns: int = 3
    stop: tuple[str, ...] = (",",)
    phase: Literal["both", "macro", "micro"] = "both"
    writes: frozenset[str] = frozenset({"level:1"})

    @property
    def needs(self) -> frozenset[str]:
        """Greedy decoding, where plans are compared by it."""
        return frozenset() if self.phase == "both" else frozenset({"greedy"})

    @property
    def leaves(self) -> int:
        """The most it makes of a prompt."""
        return self.plans * (self.executions if self.phase == "both" else 1) + (
            self.executions if self.phase == "micro" else 0
        )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All plans at once, each executed as soon as it stands; then the best one again, where that is the phase."""
        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(self._branch(tree, hand)) for _ in range(self.plans)]
        if self.phase == "both":
            return
        tree.root.scores["learns_micro"] = float(self.phase == "micro")
        if self.phase == "micro":
            await self._best(tree, hand, [plan for branch in branches if (plan := branch.result()) is not None])

    async def _branch(self, tree: Tree, hand: Hand) -> Node | None:
        """A plan that was executed; None where there was nothing to execute."""
        here = await self._plan(tree, hand.as_actor("planner", level=1))
        if here is None or here.status != "open":
            return None
        count, draw = (self.executions, SamplingOptions()) if self.phase == "both" else (1, GREEDY)
        await self._execute(hand, here, count, draw)
        return here

    async def _execute(self, hand: Hand, plan: Node, count: int, draw: SamplingOptions) -> list[Node]:
        async with asyncio.TaskGroup() as group:
            played = [group.create_task(play(hand, plan, **draw)) for _ in range(count)]
        return [leaf for one in played if (leaf := one.result()) is not plan]

    async def _best(self, tree: Tree, hand: Hand, plans: Sequence[Node]) -> None:
        """Execute the plan whose greedy execution earned most; the first of equal ones."""
        earned = {
            plan.id: leaf.scores["reward"] for plan in plans if plan.status != "pruned"
            for leaf in tree.leaves(plan) if leaf.status == "done" and "reward" in leaf.scores
        }  # fmt: skip
        if not earned:
            return
        best, measured = tree[max(earned, key=lambda plan: earned[plan])], tree.leaves()
        hand.event("select", best, "the best plan is fixed", earned=earned[best.id], plans=len(earned))
        if not await self._execute(hand, best, self.executions, SamplingOptions()):
            return
        for leaf in measured:
            if not leaf.usage and leaf.status == "done":
                leaf.usage = "dropped: it only measured its plan"

    async def _plan(self, tree: Tree, hand: Hand) -> Node | None:
        """Where a plan ends; None where the budget has no leaf left."""
        here, turns = tree.root, self.turns
        if isinstance(hand.task, Planned):
            turns = hand.task.plan_turns
        for _ in range(turns if hand.interactive else 1):
            grown = await stretch(hand, here, stop=() if hand.interactive else self.stop)
            if not grown:
                return None if here is tree.root else here
            here = grown[0]
            if here.status != "open":
                break
        return here
