"""The most likely answer beside sampled ones: its outcome stands on the prompt, for credits that compare with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from rolltree.generate.hand import Hand
from rolltree.generate.strategy import TreeStrategy
from rolltree.generate.turns import play
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class WithGreedy:
    """One greedy rollout beside the inner strategy's; the prompt gets the greedy outcome as `greedy_reward` (ReMax,
    arXiv 2310.10505).

    The greedy rollout has no sampling probability and is not trained on; its tokens are paid for all the same. A tree
    grown in several rounds is given one. Where it failed or the budget had ended the others cannot be compared and are
    dropped.
    """

    inner: TreeStrategy
    writes: ClassVar[frozenset[str]] = frozenset({"root:greedy_reward"})

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's, and an engine that can be greedy."""
        return self.inner.needs | {"greedy"}

    @property
    def want(self) -> frozenset[str]:
        """Extras that the inner strategy records."""
        return getattr(self.inner, "want", frozenset())

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Both at once; the inner strategy counts what stands in the tree before the greedy rollout does."""
        alone = "greedy_reward" in tree.root.scores
        async with asyncio.TaskGroup() as group:
            group.create_task(self.inner.grow_tree(tree, hand))
            if not alone:
                group.create_task(self._baseline(tree, hand))
        if "greedy_reward" not in tree.root.scores:
            for leaf in tree.leaves():
                if leaf.parent is not None and not leaf.usage:
                    leaf.usage = "dropped: no greedy rollout to compare with"

    async def _baseline(self, tree: Tree, hand: Hand) -> None:
        leaf = await play(hand, tree.root, temperature=0.0)
        if leaf.parent is not None:
            leaf.usage = "dropped: the greedy baseline"
            if leaf.status == "done" and "reward" in leaf.scores:
                tree.root.scores["greedy_reward"] = leaf.scores["reward"]
