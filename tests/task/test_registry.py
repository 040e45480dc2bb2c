"""Tasks by name: what is known, what is refused and how it is said."""

import pytest

from rolltree.errors import RolltreeError
from rolltree.task.items import TaskError, check_item
from rolltree.task.nano.countdown import Countdown
from rolltree.task.protocol import Item, Task
from rolltree.task.registry import list_tasks, load_task


def test_all_listed_tasks_load_and_fit_the_protocol():
    for info in list_tasks():
        task = load_task(info.name)
        assert isinstance(task, Task)
        assert (task.name, task.max_turns > 0) == (info.name, info.interactive)
        assert task.level in info.levels


def test_levels_and_knobs_reach_the_task():
    assert load_task("countdown", level=3, use_all=False) == Countdown(level=3, use_all=False)


@pytest.mark.parametrize(
    ("name", "knobs", "sentence"),
    [
        ("countdwn", {}, "unknown task 'countdwn': did you mean 'countdown'?"),
        ("zzz", {}, "unknown task 'zzz': known: arithmetic, calculator,"),
        (
            "countdown",
            {"use_al": 1},
            "task 'countdown' has no knob 'use_al'; did you mean 'use_all'?",
        ),
        ("calculator", {"fail_rate": 1.5}, "calculator's fail_rate must be in [0, 1), not 1.5"),
        ("grid", {"level": 7}, "grid has levels 1-4, not 7: the nearest is 4"),
        ("jsonll:x", {}, "unknown kind of task 'jsonll': did you mean 'jsonl'?"),
        ("jsonl:x", {"level": 2}, "task 'jsonl:x' has no knob 'level'"),
        ("countdown?level=x", {}, "level='x' of countdown is no level; give a whole number"),
    ],
)
def test_what_is_unknown_is_refused_with_the_nearest_known(name, knobs, sentence):
    with pytest.raises(RolltreeError) as error:
        load_task(name, **knobs)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_an_item_without_an_answer_or_a_prompt_is_refused():
    item = Item("a-1", "2+2=", 4)
    assert check_item(item) is item
    with pytest.raises(TaskError, match="item 'a-1' has no answer"):
        check_item(Item("a-1", "2+2=", None))
    with pytest.raises(TaskError, match="item 'a-1' has an empty prompt"):
        check_item(Item("a-1", "", 4))
