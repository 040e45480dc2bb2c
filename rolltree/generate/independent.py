"""n independent rollouts of a prompt: the flat group, a tree of depth one (deeper where an environment answers)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rolltree.engine.protocol import Forks
from rolltree.generate.hand import Hand
from rolltree.generate.turns import lacks_outcome, play, proceed
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Independent:
    """Tops a tree up to `n` leaves, or as many as the budget has; leaves paused earlier go on.

    Each leaf is verified as it finishes. Failed and pruned leaves count: filling up for them is another decision.
    """

    n: int = 8
    verify: bool = True
    needs: frozenset[str] = frozenset()
    """What its user relies on; the extras that are recorded need no mention."""
    want: frozenset[str] = frozenset()
    """Extras to record for the credit: "entropy", "top:5"."""

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Play all branches at once."""
        forks = _forks(hand)
        old = [leaf for leaf in tree.leaves() if leaf.parent is not None]
        missing = int(min(self.n - len(old), hand.budget.remaining("leaves")))
        async with asyncio.TaskGroup() as group:
            for leaf in old:
                if leaf.status == "paused":
                    group.create_task(proceed(hand, leaf, want=self.want, verify=self.verify, forks=forks))
            for _ in range(missing):
                group.create_task(play(hand, tree.root, want=self.want, verify=self.verify, forks=forks))

    @property
    def samples(self) -> int:
        """As of `SampleStrategy`."""
        return self.n

    async def grow_sample(self, hand: Hand, leaf: Node | None) -> None:
        """One branch, from the prompt or from where it was stopped."""
        if leaf is None:
            await play(hand, hand.tree.root, want=self.want, verify=self.verify, forks=_forks(hand))
        elif leaf.status in ("open", "paused") or lacks_outcome(leaf):
            await proceed(hand, leaf, want=self.want, verify=self.verify, forks=_forks(hand))
        elif leaf.status == "done" and not leaf.is_leaf:
            await play(hand, leaf, want=self.want, verify=self.verify, forks=_forks(hand))

    def sampled(self, leaf: Node) -> bool:
        """Done, and verified where that is wanted."""
        return leaf.status == "done" and leaf.is_leaf and not (self.verify and lacks_outcome(leaf))


def _forks(hand: Hand) -> Forks:
    """Only an environment's answer makes a rollout go on."""
    return "maybe" if hand.interactive else "none"
