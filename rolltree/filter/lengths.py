"""How long a rollout is, as rewards of length count it."""

from __future__ import annotations

from rolltree.tree import Node, Tree


def written(tree: Tree, leaf: Node) -> int:
    """Tokens that the policy wrote on a leaf's path."""
    return sum(len(n) for n in tree.path(leaf) if n.trainable)
