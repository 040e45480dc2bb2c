"""A temperature for every token: uncertain ones are drawn hotter, certain ones colder (HAPO, arXiv 2509.16591)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.turns import lacks_outcome, play
from rolltree.tree import Tree

FLOOR = 1e-8
"""Smallest entropy that is told from none."""


@dataclass(frozen=True, slots=True)
class ByEntropy:
    """A sampler's hook: T = 1 + τ ĥ, with ĥ ∈ [−1, 1] the log-entropy of the token's distribution around a pivot, each
    side over its own reach. On top of the run's own temperature.
    """

    tau: float
    pivot: float
    top: float
    bottom: float

    def __call__(self, generated: Sequence[int], logits: Any) -> Any:
        """The logits at their own temperature."""
        x = np.asarray(logits, np.float64)
        logp = x - np.logaddexp.reduce(x)
        p = np.exp(logp)
        entropy = -float((p * np.where(p > 0, logp, 0.0)).sum())
        away = float(np.log(max(entropy, FLOOR))) - self.pivot
        h = away / (self.top if away > 0 else self.bottom)
        return logits / (1 + self.tau * min(max(h, -1.0), 1.0))


def scale_of(entropy: np.ndarray[Any, np.dtype[np.floating[Any]]], tau: float, quantile: float) -> ByEntropy:
    """The hook for a scale read off entropies seen before."""
    e = np.log(np.maximum(entropy.astype(np.float64), FLOOR))
    pivot = float(np.quantile(e, quantile))
    return ByEntropy(tau, pivot, float(e.max()) - pivot or 1.0, pivot - float(e.min()) or 1.0)


@dataclass(frozen=True, slots=True)
class Tempered:
    """`n` independent rollouts, the first half at the policy's own distribution, the others with a temperature per
    token.

    The paper reads the scale off the training step before; here it is read off the prompt's own first half, so that
    nothing has to survive a step (reconstructed). `sampling_logprob` is the tempered distribution: objectives should
    take their ratio against it.
    """

    n: int = 8
    tau: float = 0.05
    quantile: float = 0.8
    want: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset({"entropy:full", "hook"})

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """The plain half, then the tempered one."""
        want = self.want | {"entropy"}
        begun = len(tree.children(tree.root))
        plain = max((self.n + 1) // 2 - begun, 0)
        await self._play(tree, hand, plain, want, None)
        seen = [node.entropy for node in tree if node.trainable and node.entropy is not None and len(node)]
        hook = scale_of(np.concatenate(seen), self.tau, self.quantile) if seen else None
        await self._play(tree, hand, self.n - begun - plain, want, hook)
        for leaf in tree.leaves():
            if lacks_outcome(leaf):
                await hand.verify(leaf)

    async def _play(self, tree: Tree, hand: Hand, count: int, want: frozenset[str], hook: ByEntropy | None) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(int(min(max(count, 0), hand.budget.remaining("leaves")))):
                group.create_task(play(hand, tree.root, want=want, hook=hook))
