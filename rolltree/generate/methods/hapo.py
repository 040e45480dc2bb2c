"""A temperature for every token: uncertain ones are drawn hotter, certain ones colder (HAPO, arXiv 2509.16591)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.signals import log_entropy
from rolltree.generate.turns import lacks_outcome, play
from rolltree.tree import Tree


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
        entropy = -(p * np.where(p > 0, logp, 0.0)).sum()
        away = float(log_entropy(entropy)) - self.pivot
        h = away / (self.top if away > 0 else self.bottom)
        return logits / (1 + self.tau * min(max(h, -1.0), 1.0))


@dataclass(frozen=True, slots=True)
class Tempered:
    """`n` independent rollouts with a temperature per token; at the policy's own distribution while no scale is known.

    The scale is that of log-entropies seen before: their pivot, the most and the least of them. `sampling_logprob` is
    the tempered distribution: objectives should take their ratio against it.
    """

    n: int = 8
    tau: float = 0.05
    pivot: float | None = None
    most: float = 0.0
    least: float = 0.0
    want: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset({"entropy:full", "hook"})

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All at once."""
        want, hook = self.want | {"entropy"}, self.hook
        if hook is not None:
            told = {"pivot": hook.pivot, "top": hook.top, "bottom": hook.bottom}
            hand.event("note", None, "drawn hotter where uncertain, colder where certain", tau=self.tau, **told)
        missing = max(self.n - len(tree.children(tree.root)), 0)
        async with asyncio.TaskGroup() as group:
            for _ in range(int(min(missing, hand.budget.remaining("leaves")))):
                group.create_task(play(hand, tree.root, want=want, hook=hook))
        for leaf in tree.leaves():
            if lacks_outcome(leaf):
                await hand.verify(leaf)

    @property
    def hook(self) -> ByEntropy | None:
        """What tempers every token; None while nothing is known."""
        if self.pivot is None:
            return None
        return ByEntropy(self.tau, self.pivot, self.most - self.pivot or 1.0, self.pivot - self.least or 1.0)
