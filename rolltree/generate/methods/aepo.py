"""How many rollouts start at the root and how many branch later: AEPO's split of the leaves by uncertainty.

A prompt that is uncertain at its root deserves more rollouts from there; one that becomes uncertain after its tool
answers deserves more branches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.turnforks import TurnForks
from rolltree.generate.turns import play
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Balanced:
    """AEPO's pre-monitoring (arXiv 2510.14545): m of k leaves start at the root, m as of `starts`.

    One whole rollout is played first: H_root is the mean uncertainty of the first tokens of its first turn, H̄_tool
    that of the heads of all its turns, both over ln V. Released code throws this rollout away; here it is the first of
    the m. Means per token instead of sums make windows of different length comparable (reconstructed).
    """

    inner: TurnForks = field(default_factory=lambda: TurnForks(penalty=0.05))
    beta: float = 0.5
    head: int = 50
    """Tokens of the first turn that H_root is read over."""
    keep: bool = True
    """Whether the probe is a leaf like the others; released code pays for it and throws it away."""

    @property
    def want(self) -> frozenset[str]:
        """The inner strategy's."""
        return self.inner.want

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's."""
        return self.inner.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Probe, split, and let the inner strategy grow the rest."""
        probe = await play(hand, tree.root, want=self.want)
        if probe is tree.root:
            return
        turns = [n for n in tree.path(probe) if n.role == "policy" and len(n)]
        heads = [(turn, self.inner.window) for turn in turns]
        root, tools = self._mean(hand, [(turn, self.head) for turn in turns[:1]]), self._mean(hand, heads)
        total = starts(self.inner.leaves, self.beta * (root - tools))
        why = f"{total} of {self.inner.leaves} leaves start at the root"
        hand.event("allocate", tree.root, why, starts=total, at_root=root, at_tools=tools)
        if not self.keep:
            hand.prune(tree.path(probe)[1], why="the probe is thrown away")
        # One more rollout at least, so that there is something to branch from.
        await replace(self.inner, first=max(1, total - self.keep)).grow_tree(tree, hand)

    def _mean(self, hand: Hand, heads: list[tuple[Node, int]]) -> float:
        read = [self.inner.signal.read(turn)[:window].mean() for turn, window in heads]
        return float(np.mean(read)) / math.log(hand.codec.vocab_size) if read else 0.0


def starts(leaves: int, gap: float) -> int:
    """AEPO's m = min(k, ⌊k·σ(gap)⌋ + 1) for k leaves and the gap β(H_root − H̄_tool)."""
    return min(leaves, math.floor(leaves / (1 + math.exp(-gap))) + 1)
