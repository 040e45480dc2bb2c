"""Verdicts of a judge that compares two answers: every leaf against one member of its group (BRPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.filter.groups import live_leaves
from rolltree.filter.rewards import RewardError
from rolltree.generate.random import mix
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Versus:
    """Writes `versus` on every live leaf, the share of votes it won against one of them, and `reference` = 1 on that
    one, drawn anew for every group (bootstrapped relative policy optimisation, arXiv 2506.00103).

    The paper's judge is a generative reward model that reads both answers in both orders. Here the judge compares a
    `quality` that the task's verifier measured, through `noise` (the deviation of each reading) and `bias` (what it
    adds to the answer it reads first): with both at 0 it is that model without its errors. An equal answer has not won.
    """

    quality: str = "reward"
    votes: int = 1
    """Votes in each of the two orders."""
    noise: float = 0.0
    bias: float = 0.0
    seed: int = 0
    writes: ClassVar[frozenset[str]] = frozenset({"judged:versus"})

    def __call__(self, tree: Tree, limit: int) -> None:
        """Judge the live leaves of one tree; `limit` is not used."""
        leaves = live_leaves(tree)
        if not leaves:
            return
        values = np.array([self._quality(tree, leaf) for leaf in leaves])
        # The draw belongs to this very group: another visit of the prompt has another reference.
        rng = np.random.default_rng(mix(self.seed, tree.id, *(leaf.actions.tobytes().hex() for leaf in leaves)))
        chosen = int(rng.integers(len(leaves)))
        read = self.noise * rng.normal(size=(2, 2, self.votes, len(leaves)))
        order = self.bias * np.array([1.0, -1.0])[:, None, None]
        won = (values + read[:, 0] + order > values[chosen] + read[:, 1]).mean(axis=(0, 1))
        for i, leaf in enumerate(leaves):
            leaf.scores.update(versus=float(won[i]) if i != chosen else 0.0, reference=float(i == chosen))
        share = float(won[np.arange(len(leaves)) != chosen].mean()) if len(leaves) > 1 else 0.0
        tree.event("note", leaves[chosen], "the answer the others were compared with", quality=float(values[chosen]),
                   won=share)  # fmt: skip

    def _quality(self, tree: Tree, leaf: Node) -> float:
        if self.quality not in leaf.scores:
            raise RewardError(
                f"node {leaf.id} of tree {tree.id!r} has no part {self.quality!r} to compare; choose a task whose "
                "verifier measures it, or name a part that it has"
            )
        return leaf.scores[self.quality]
