"""Allocation over prompts in several rounds, wrapped around any strategy for one prompt.

A round gives trees limits (usually leaves) and lets the inner strategy grow within them; what it sees then decides the
next round. `Rounds` decides over all prompts together and so waits for all of them (a barrier); `OwnRounds` lets each
prompt advance by itself. Every share is an `allocate` event with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rolltree.control.ledger import Limits
from rolltree.generate.hand import Hand
from rolltree.generate.strategy import TreeStrategy, on_each
from rolltree.tree import Forest, Tree


@dataclass(frozen=True, slots=True)
class Share:
    """What a tree may spend in one round, and why."""

    limits: Limits
    why: str = ""
    numbers: Mapping[str, Any] | None = None


Decide = Callable[[Forest, int, Hand], Mapping[str, Share]]
"""(forest so far, round from 0, the forest's hand) → a share by tree id; trees without one rest; empty = done."""

DecideOne = Callable[[Tree, int, Hand], Share | None]
"""(tree so far, its round from 0, its hand) → its share; None = done."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """All prompts advance together: each round's shares depend on what all trees look like after the last one."""

    inner: TreeStrategy
    decide: Decide
    most: int = 64
    """Rounds after which it ends in any case."""

    @property
    def needs(self) -> frozenset[str]:
        """Those of the inner strategy."""
        return self.inner.needs

    async def grow(self, forest: Forest, hand: Hand) -> None:
        """Decide, grow, wait for all, decide again."""
        for number in range(self.most):
            shares = self.decide(forest, number, hand)
            if not shares:
                return

            async def grow_share(tree: Tree, mine: Hand, shares: Mapping[str, Share] = shares, n: int = number) -> None:
                await self.inner.grow_tree(tree, _allotted(mine, shares[tree.id], n))

            alive = [forest[id] for id in shares if "failed" not in forest[id].notes]
            await on_each(alive, hand, grow_share)


@dataclass(frozen=True, slots=True)
class OwnRounds:
    """Each prompt advances by itself, without waiting for the others."""

    inner: TreeStrategy
    decide: DecideOne
    most: int = 64

    @property
    def needs(self) -> frozenset[str]:
        """Those of the inner strategy."""
        return self.inner.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Decide, grow, decide again, for this tree."""
        for number in range(self.most):
            share = self.decide(tree, number, hand)
            if share is None:
                return
            await self.inner.grow_tree(tree, _allotted(hand, share, number))


def _allotted(hand: Hand, share: Share, number: int) -> Hand:
    limits = {k: v for k in Limits.__slots__ if (v := getattr(share.limits, k)) is not None}
    hand.event("allocate", None, share.why, round=number, **limits, **(share.numbers or {}))
    return hand.under(share.limits, f"round {number}")
