"""What recipes that search with a frozen policy share: nobody trains on them, and who does takes GRPO's update."""

from __future__ import annotations

from rolltree.credit.registry import load_credit
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Parts


def search_parts(name: str, strategy: TreeStrategy) -> Parts:
    """A search with group credit and the clipped surrogate for those who train on its leaves."""
    return Parts(name, strategy, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
