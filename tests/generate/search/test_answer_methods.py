"""Methods over whole answers and graded steps on the tiny exact policy: who pays, what refers to what, what is kept."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from rolltree.control.ledger import Budget
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Forest


def grown(strategy: TreeStrategy, budget: Budget | None = None, n: int = 4) -> Forest:
    task = SpellTask()
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n), seed=2, budget=budget))


def main_trees(forest: Forest) -> list[Any]:
    return [tree for tree in forest if "/" not in tree.id]
