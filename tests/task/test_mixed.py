"""Tasks that mix levels: every level comes as often, splits stay apart, and each item is judged by its own task."""

import asyncio
from collections import Counter
from itertools import islice
from random import Random

import pytest

from rolltree.control.hints import solver
from rolltree.errors import RolltreeError
from rolltree.task.items import ENVIRONMENT
from rolltree.task.registry import load_task
from rolltree.testing import task as contract


def test_levels_and_tasks_come_equally_often():
    task = load_task("mixed:arithmetic+records")
    drawn = Counter((i.meta[ENVIRONMENT], i.level) for i in islice(task.items("train"), 4000))
    assert len(drawn) == 8
    assert all(abs(n - 500) < 100 for n in drawn.values())
    low = load_task("mixed:arithmetic", level=2)
    assert {i.level for i in islice(low.items("train"), 50)} == {1, 2}


def test_it_owes_what_every_task_owes():
    task = load_task("mixed:arithmetic+countdown")
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task)


def test_each_item_is_answered_and_judged_by_its_own_task():
    task = load_task("mixed:arithmetic+countdown+records")
    assert (task.stop, task.max_turns, task.max_tokens) == ((), 0, 64)
    solve = solver(task)
    for item in islice(task.items("test"), 30):
        assert asyncio.run(task.verify(item, None, solve(item))).score == 1.0
        assert asyncio.run(task.verify(item, None, "?")).score == 0.0
        assert task.act(item, None, Random(0))


def test_what_cannot_be_mixed_is_refused_in_a_sentence():
    for name, level, said in (("mixed:arithmetik", None, "did you mean 'arithmetic'"),
                              ("mixed:arithmetic+grid", None, "answered in one turn"),
                              ("mixed:arithmetic", -1, "none up to -1")):  # fmt: skip
        with pytest.raises(RolltreeError, match=said):
            load_task(name, level=level)
