"""A whole tree of steps: every path goes on so many ways until it ends or is deep enough (HRM, arXiv 2503.13551)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rolltree.generate.decide import decide
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import lacks_outcome, stretch
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class WholeTree:
    """Layer by layer, `ways` steps below every open path; a path that is `height` steps long ends there, right or not.

    What the trees called MCTS in the released code are: no selection, every node is expanded.
    """

    ways: int = 5
    height: int = 5
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing. In an environment a step is a turn."""
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, and let the leaves vote."""
        draw: SamplingOptions = {}
        if not hand.interactive:
            draw = {"max_tokens": self.step, "stop": (self.delimiter,) if self.delimiter else ()}
        live: list[Node] = [tree.root]
        for _ in range(self.height):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(stretch(hand, node, self.ways, birth="resample", why="a step", **draw))
                    for node in live
                ]
            live = [end for task in tasks for end in task.result() if end.status == "open"]
        dead = [end for end in live if end.is_leaf and end.status == "open"]
        for end in dead:
            hand.close(end, "depth", f"the tree is {self.height} steps high")
        async with asyncio.TaskGroup() as group:
            for end in dead:
                if lacks_outcome(end):
                    group.create_task(hand.verify(end))
        hand.event("note", None, "the tree is whole", dead_ends=len(dead))
        decide(hand, finished(tree), "vote")
