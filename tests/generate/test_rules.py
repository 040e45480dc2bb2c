"""The tutorial's branching rule, as printed, in every strategy that takes one."""

from __future__ import annotations

import asyncio
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolltree.generate.runner import grow
from rolltree.generate.stems import OneAtATime, TwoWaves
from rolltree.generate.turnforks import Rule, TurnForks, rule
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.shape import sharing
from rolltree.metrics.step import grown_metrics
from rolltree.recipe.check import check
from rolltree.recipe.treepo import SegmentTree
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Node
from rolltree.tree.table import table

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "branching-rule.md"


def printed() -> dict[str, Any]:
    """Names that the page's code defines."""
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)), names)
    return names


def test_the_tutorial_runs_as_printed_and_is_as_short_as_it_says() -> None:
    first = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 15
    names = printed()
    assert isinstance(names["surprised"], Rule)
    assert isinstance(names["strategy"], OneAtATime)
    check(names["parts"], tiny_engine(), SpellTask())


@rule("entropy")
def first_letter(node: Node) -> np.ndarray:
    """1 for a run that begins with "a", else 0."""
    return np.full(len(node), float(len(node) > 0 and node.actions[0] == 0))


@pytest.mark.parametrize(
    "strategy",
    [SegmentTree(6, 3, rule=first_letter), TurnForks(6, 3, rule=first_letter), TwoWaves(2, scorer=first_letter)],
    ids=["segments", "turns", "waves"],
)
def test_a_rule_keeps_the_contract_of_every_strategy(strategy: Any) -> None:
    check_strategy(strategy)


def test_free_places_go_to_the_highest_scores() -> None:
    task = Walk()
    strategy = TurnForks(7, 6, rule=first_letter, fill="none")
    forest = asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 12), seed=2))
    chosen = [e for tree in forest for e in tree.events if e.kind == "select"]
    assert chosen
    for tree in forest:
        first = [n for n in tree.children(tree.root) if len(n) and n.actions[0] == 0 and n.status == "done"]
        picks = [e for e in tree.events if e.kind == "select"]
        if any(any(c.role == "env" and c.status != "done" for c in tree.children(n)) for n in first):
            assert picks[0].numbers["score"] == 1.0
    assert sum(n.birth == "root" and n.parent is not None for tree in forest for n in tree) == 72
    numbers = grown_metrics(forest)
    assert numbers["rollout/group_size"] == pytest.approx(np.mean([len(t.leaves()) for t in forest]))
    assert sharing(Rollouts(table(forest)))["rollout/sharing"] > 1
