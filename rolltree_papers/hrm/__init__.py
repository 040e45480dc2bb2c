"""HRM: hierarchical multi-step reward model, with hierarchical node compression (arXiv 2503.13551)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import lacks_outcome, stretch
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree

# A whole tree of steps: every path goes on so many ways until it ends or is deep enough (HRM, arXiv 2503.13551).


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


@dataclass(frozen=True, slots=True)
class Hrm:
    """Whole trees of steps, whose labels also say what two steps in a row are worth.

    `rolltree solve hrm --items-from train --out runs/hrm` grows them: all ways on down to a height, where what has not
    ended is judged as it stands (in the released code a dead end counts as wrong). `rolltree labels runs/hrm --kind prm
    --soft --until-error false --merge --compress` writes the rows: each path, the same with its last two steps as one
    and the later one's label, and the rows of the compressed tree. `--kind head` distils labels into a small model that
    reads steps one by one, as the paper's does once it is trained. Left out are the policy that is trained on the
    paths, with a KL to a reference, and the balance of labels by height. A label that forgives an error does not say
    where the first error is.
    """

    card: ClassVar[Card] = Card(
        "hrm", "Hierarchical reward model", "2503.13551", 2025,
        "best of N is steadier than by process or outcome reward models, and transfers better between sets",
        ("generate", "filter"), "step_labels",
        Evidence("right answers by best of 64", "the same head on single steps alone",
                 check="rolltree_papers.hrm.study:merged", seeds=5),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    ways: int = 5
    """Steps below every step."""
    height: int = 3
    """Most steps of a path (5 in the paper: 3905 nodes)."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing. In an environment a step is a turn."""

    def build(self) -> Parts:
        """A whole tree."""
        if self.ways < 2 or self.height < 1:
            raise RecipeError(f"hrm: ways={self.ways} and height={self.height} make no tree; give at least 2 and 1")
        return search_parts("hrm", WholeTree(self.ways, self.height, self.step, self.delimiter))
