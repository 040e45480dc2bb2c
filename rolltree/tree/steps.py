"""Step values and first errors: where they stand, and what they are where nobody wrote them down."""

from __future__ import annotations

import numpy as np

from rolltree.tree.node import Node
from rolltree.tree.tree import Tree

STEP_VALUE = "step_value"
"""Key in a node's scores: how often a rollout from its end was right."""
THOUGHT = "thought"
"""Key in a step's notes: what leads to it, written afterwards by who did not see what came of it."""
FIRST_ERROR = "first_error"
"""Key in a leaf's notes: index of its first wrong step among its steps, None where it has none."""


def solved(leaf: Node) -> bool:
    """Whether a leaf counts as right."""
    return leaf.scores.get("solved", float(leaf.scores.get("reward", 0.0) >= 1.0)) >= 1.0


def steps_of(tree: Tree, leaf: Node) -> list[Node]:
    """The policy's runs on a leaf's path since its last prompt, in order; empty ones are no steps."""
    path = tree.path(leaf)
    start = max(i for i, node in enumerate(path) if node.role == "prompt")
    return [node for node in path[start + 1 :] if node.role == "policy" and len(node)]


def value_of(tree: Tree, node: Node) -> float | None:
    """How often a rollout from a node's end was right: what was noted there, else the share of right leaves below it.

    None where no leaf below it was judged.
    """
    if STEP_VALUE in node.scores:
        return node.scores[STEP_VALUE]
    judged = [solved(leaf) for leaf in tree.leaves(node) if leaf.status == "done" and "reward" in leaf.scores]
    return float(np.mean(judged)) if judged else None
