"""Whether a linear head on step labels tells good steps from bad ones better than the policy's own confidence does."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np

from rolltree.analysis.step_head import auc, fitted, hidden_at
from rolltree.analysis.step_rows import labelled
from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.generate.runner import grow
from rolltree.generate.step_labels import StepLabels
from rolltree.task.registry import load_task
from rolltree.tree import Node, Tree
from rolltree.tree.steps import steps_of, value_of
from studies.lab.claim import Measured

RIDGE = 30.0


def head(seed: int, items: int = 64) -> Measured:
    """AUC on the steps of the last quarter of the prompts, by a head fitted on the others and by confidence."""
    from rolltree.engine.local import LocalEngine

    async def run() -> Measured:
        engine, task = LocalEngine("nano"), load_task("countdown")
        try:
            asked = islice(task.items("train", seed), items)
            account = Budget()
            forest = list(await grow(StepLabels(4, 8), engine, task, asked, seed=seed, budget=account))
            parts = [valued(trees) for trees in (forest[: 3 * items // 4], forest[3 * items // 4 :])]
            x = [np.stack([await hidden_at(engine, tree, node) for tree, node, _ in part]) for part in parts]
            y = [np.array([value for _, _, value in part]) for part in parts]
        finally:
            await engine.close()
        made = fitted(x[0], y[0], RIDGE, "nano")
        sure = np.array([float(np.exp(node.logp.mean())) if node.logp is not None else 0.0 for _, node, _ in parts[1]])
        moved = counted("step_labels", forest, account)
        return Measured(auc(made.of(x[1]), y[1]) or 0.5, auc(sure, y[1]) or 0.5, acted=moved)

    return asyncio.run(run())


def valued(trees: list[Tree]) -> list[tuple[Tree, Node, float]]:
    """Every labelled step once."""
    found = {(tree.id, step.id): (tree, step, value) for tree in trees for leaf in labelled(tree)
             for step in steps_of(tree, leaf) if (value := value_of(tree, step)) is not None}  # fmt: skip
    return list(found.values())
