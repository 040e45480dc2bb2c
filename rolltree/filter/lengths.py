"""Soft punishment of overlong answers (DAPO, arXiv 2503.14476, section 3.4, eq. 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rolltree.filter.groups import live_leaves
from rolltree.tree import Node, Tree

# How long a rollout is, as rewards of length count it.


def written(tree: Tree, leaf: Node) -> int:
    """Tokens that the policy wrote on a leaf's path."""
    return sum(len(n) for n in tree.path(leaf) if n.trainable)


class Shaper(Protocol):
    """Changes outcomes of a finished tree before credit is computed; what the verifier said stays in `outcome`.

    One that reads more than outcomes says so in `needs`, in the words of credits (`leaf:tool_mode`, `root:effort`,
    `entropy`), or as `part:NAME` of the verdict. What nothing supplies is refused before the first rollout.
    """

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape the leaves of one tree; `limit` is the most policy tokens a path may have."""
        ...


@dataclass(frozen=True, slots=True)
class Overlong:
    """Adds 0 up to limit − buffer tokens, then falls linearly to −penalty at the limit.

    `buffer` is a share of the limit (the paper: 4,096 of 20,480).
    """

    buffer: float = 0.2
    penalty: float = 1.0

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape the outcome of every live leaf by its number of policy tokens."""
        width = self.buffer * limit
        for leaf in live_leaves(tree):
            length = sum(len(n) for n in tree.path(leaf) if n.trainable)
            over = min(max(length - (limit - width), 0.0) / width, 1.0) if width > 0 else 0.0
            leaf.scores.setdefault("outcome", leaf.scores["reward"])
            # On top of what other shapers made of the outcome, and once only.
            leaf.scores["reward"] -= leaf.scores.get("overlong", 0.0)
            leaf.scores["overlong"] = -self.penalty * over
            leaf.scores["reward"] += leaf.scores["overlong"]
