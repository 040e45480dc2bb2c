"""Log-probs of nodes whose context has changed, or that were never read, in the tree where they stand now."""

from __future__ import annotations

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine
from rolltree.generate.patience import error_line
from rolltree.tree import Node, Tree
from rolltree.tree.node import Array


async def score_bare(tree: Tree, heads: list[Node], engine: Engine, budget: Budget) -> None:
    """Give rollouts whose context was left out the log-prob they have without it; the sampling distribution stays in
    `sampling_logprob`."""
    for head in heads:
        for node in tree.walk(head):
            if node.trainable and len(node):
                await score_node(tree, node, engine, budget)
                node.entropy = node.top = None


async def score_node(tree: Tree, node: Node, engine: Engine, budget: Budget) -> None:
    """Write the policy's log-prob of a node's actions in this tree on it; if that breaks, what is below failed."""
    prefix: Array = tree.prefix(node)
    try:
        scored = await engine.score(prefix, len(prefix) - len(node))
    except Exception as error:
        for leaf in tree.leaves(node):
            if not leaf.ended or leaf.status == "done":
                why = f"scoring in the tree's context: {error_line(error)}"
                tree.close(leaf, "failed", "error", why, error=type(error).__name__)
        return
    budget.charge("prefilled", len(prefix))
    node.logp = scored.logp
    if node.forced:
        node.sampling_logprob = np.full(len(node), np.nan, np.float32)
    if node.version is None:
        node.version = np.full(len(node), scored.version, np.int32)
