"""Whether a recipe's mechanism acted in trees that nobody trained on: its counter, as training would have logged it."""

from __future__ import annotations

from collections.abc import Iterable

from rolltree.control.ledger import Budget
from rolltree.generate.roles import is_side
from rolltree.metrics.step import grown_metrics
from rolltree.recipe.registry import counter_of
from rolltree.train.totals import RunTotals
from rolltree.tree import Tree


def counted(recipe: str, grown: Iterable[Tree], account: Budget) -> dict[str, float]:
    """The metric that the recipe's card names, of these trees and of what they spent; nothing where it names none."""
    counter = counter_of(recipe)
    if counter is None:
        return {}
    trees = [tree for tree in grown if not is_side(tree)]
    numbers = RunTotals().add(account) | grown_metrics(trees)
    return {counter.metric: numbers.get(counter.metric, counter.rest)}
