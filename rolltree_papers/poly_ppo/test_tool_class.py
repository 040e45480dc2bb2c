"""What `poly_ppo` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio

import pytest

from rolltree.generate.runner import grow
from rolltree.generate.strategy import NeedsError
from rolltree.task.items import TaskError
from rolltree_papers.poly_ppo import Vines
from tests.task.foreign.test_tool_class import item_of, lines
from tests.task.foreign.worlds import Counter, Locked, scripted


def test_strategies_that_need_snapshots_are_refused_where_environments_cannot_be_copied():
    said = {"count to 3": "add 1", "at 1": "add 1", "at 2": "add 1", "at 3": "stop"}
    engine = scripted(lambda seen: said[seen[-1]])
    copied, replayed = lines(Counter), lines(Locked)
    forest = asyncio.run(grow(Vines(), engine, copied, [item_of(copied, 3)]))
    assert all(leaf.status == "done" for _, leaf in forest.leaves())
    with pytest.raises(NeedsError, match="'snapshot', which the environments of 'trl:Locked'"):
        asyncio.run(grow(Vines(), engine, replayed, [item_of(replayed, 3)]))
    with pytest.raises(TaskError, match="Locked cannot be copied"):
        lines(Locked, snapshots="copy")
