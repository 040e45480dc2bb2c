"""Small forests to try a credit, a filter or an objective on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from rolltree.tree import Tree

Shape: TypeAlias = "Sequence[Shape]"
"""Nested sequences: each is a node, an empty one a leaf."""


def flat(
    rewards: Sequence[float | None], lengths: Sequence[int] | None = None, *, id: str = "t0", item: str = ""
) -> Tree:
    """A prompt of two actions and one response per reward; a reward of None makes a failed leaf."""
    tree = Tree(id, [1, 2], item=item)
    for reward, length in zip(rewards, lengths or [3] * len(rewards), strict=True):
        scores = {} if reward is None else {"reward": float(reward)}
        status = "failed" if reward is None else "done"
        tree.extend(0, np.arange(length, dtype=np.int32), scores=scores, status=status)
    return tree


def grown(shape: Shape, rng: np.random.Generator, *, id: str = "t0") -> Tree:
    """A tree of a shape with lengths 0 to 3, masked and untrained stretches, and leaf rewards in {0, 1, 2}."""
    tree = Tree(id, [7])
    todo: list[tuple[int, Shape]] = [(0, shape)]
    while todo:
        above, spec = todo.pop(0)
        for below in spec:
            length = int(rng.integers(0, 4))
            node = tree.extend(above, rng.integers(0, 9, length).astype(np.int32), status="done")
            if length and rng.random() < 0.3:
                node.keep = rng.random(length) < 0.6
            if rng.random() < 0.1:
                node.trains = False
            if not below:
                node.scores["reward"] = float(rng.integers(0, 3))
            todo.append((node.id, below))
    return tree
