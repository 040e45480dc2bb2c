"""Finite sets of items: passes in orders of their own, from the seed alone, wherever a run is resumed."""

from itertools import islice

import pytest

from rolltree.rollout.config import RolloutError
from rolltree.rollout.cursor import Cursor
from rolltree.task.protocol import Item
from rolltree.task.registry import load_task
from rolltree.training.config import TrainConfig, TrainError


def ids(items):
    return [item.id for item in items]


def test_so_many_items_are_taken_in_passes_of_other_orders():
    cursor = Cursor(load_task("arithmetic"), 7, items=5)
    passes = [ids(cursor.take(5)) for _ in range(4)]
    assert len({frozenset(one) for one in passes}) == 1
    assert len(set(passes[0])) == 5
    assert len({tuple(one) for one in passes}) > 1
    assert (cursor.size, cursor.epoch) == (5, 4.0)
    assert passes[0] == ids(islice(load_task("arithmetic").items("train", 7), 5))


def test_a_rewound_cursor_goes_on_in_the_same_order():
    whole = Cursor(load_task("arithmetic"), 7, items=5)
    taken = ids(whole.take(17))
    again = Cursor(load_task("arithmetic"), 7, items=5)
    again.rewind(9)
    assert ids(again.take(8)) == taken[9:]
    assert ids(again.at([16, 3])) == [taken[16], taken[3]]


def test_items_without_end_have_no_epochs():
    cursor = Cursor(load_task("arithmetic"), 7)
    cursor.take(3)
    assert cursor.epoch is None


class Few:
    """Three items, again and again, without saying so."""

    name = "few"

    def items(self, split, seed=0):
        while True:
            yield from (Item(f"{split}-{k}", "p", "a") for k in range(3))


def test_more_items_than_there_are_is_refused(tmp_path):
    with pytest.raises(RolloutError, match="few gives 3 distinct training items and no more, so items=4 cannot be had"):
        Cursor(Few(), 0, items=4).take(1)
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n{"prompt": "b", "answer": "1"}')
    with pytest.raises(RolloutError, match=r"q.jsonl gives 1 distinct training items and no more, so items=2"):
        Cursor(load_task(f"{path}?reward=exact"), 0, items=2).check()
    with pytest.raises(TrainError, match="items=0 makes no sense"):
        TrainConfig(items=0)
