"""A strategy of one's own: two samples first, and six more only where they disagree.

Run it with `python examples/own_strategy.py`: it grows rollouts, checks the contract and trains for two steps.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import rolltree
from rolltree.credit.registry import load_credit
from rolltree.generate.hand import Hand
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Parts
from rolltree.testing import check_strategy
from rolltree.tree import Tree


@dataclass(frozen=True)
class MoreWhereTheyDisagree:
    first: int = 2
    more: int = 6
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        probes = await asyncio.gather(*(play(hand, tree.root) for _ in range(self.first)))
        if len({leaf.scores.get("reward") for leaf in probes}) > 1:
            hand.event("allocate", tree.root, "the first samples disagree", more=self.more)
            await asyncio.gather(*(play(hand, tree.root) for _ in range(self.more)))


def main() -> None:
    policy = rolltree.load("nano")
    forest = rolltree.grow(MoreWhereTheyDisagree(), policy, "countdown", items=8)
    print("leaves per prompt:", [len(tree.leaves()) for tree in forest])
    check_strategy(MoreWhereTheyDisagree())
    print("the contract holds")
    parts = Parts("mine", MoreWhereTheyDisagree(), load_credit("rloo"), load_objective("clipped", clip_high=0.28))
    run = rolltree.train(parts, policy, "calculator", out=Path(mkdtemp()) / "run", steps=2, eval_items=8)
    print("run:", run.path)


if __name__ == "__main__":
    main()
