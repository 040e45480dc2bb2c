"""Steps that must work: a call that the environment refuses is taken back and written anew (ST-Raptor's forward
validation)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rolltree.generate.hand import Hand
from rolltree.generate.turns import proceed, stretch
from rolltree.tree import Node, Tree

REFUSED = "the environment refused the call"
"""Why a step is taken back."""


@dataclass(frozen=True, slots=True)
class Retried:
    """n independent rollouts, whose failed calls are pruned and tried again from the place before; the last try stays.

    The policy does not see what went wrong: the step is drawn again. Without an environment these are `Independent`'s
    rollouts. An environment whose calls cannot be taken back is played again up to the place.
    """

    n: int = 8
    tries: int = 5
    """Most tries of a step."""
    needs: frozenset[str] = frozenset()
    want: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Play all branches at once."""
        old = [leaf for leaf in tree.leaves() if leaf.parent is not None]
        async with asyncio.TaskGroup() as group:
            for leaf in old:
                if leaf.status == "paused":
                    group.create_task(proceed(hand, leaf, want=self.want))
            for _ in range(int(min(self.n - len(old), hand.budget.remaining("leaves")))):
                group.create_task(self._play(hand, tree.root))

    async def _play(self, hand: Hand, here: Node) -> None:
        while here.status == "open" or here.parent is None:
            end = await self._step(hand, here)
            if end is None:
                return
            here = end

    async def _step(self, hand: Hand, here: Node) -> Node | None:
        """Where a step led: the first that worked, or the last there was; None where nothing could be paid."""
        for number in range(self.tries):
            ends = await stretch(hand, here, want=self.want)
            if not ends:
                return None
            end = ends[0]
            if not end.notes.get("failed") or number == self.tries - 1:
                return end
            hand.prune(hand.tree.path(end)[len(hand.tree.path(here))], why=REFUSED, tries=number + 1)
        return None
