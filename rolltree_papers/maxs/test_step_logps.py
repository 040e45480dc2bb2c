"""What `maxs` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from rolltree.generate.runner import grow
from rolltree.testing.tiny import Walk, tiny_engine
from rolltree.tree import Forest
from rolltree_papers.maxs import LookAheadSteps


def walked(strategy: Any, items: int = 12) -> Forest:
    task = Walk()
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), items), seed=1))


def test_maxs_tells_turns_apart_where_an_environment_answers() -> None:
    forest = walked(LookAheadSteps(ways=4, ahead=4))
    first = [next(e for e in tree.events if e.kind == "select").numbers for tree in forest]
    assert all(len(set(n["rewards"])) > 1 and n["variance"] > 0 for n in first)
    assert all(abs(n["chance"] - 0.25) > 1e-6 for n in first)
