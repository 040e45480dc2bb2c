"""Every nano task at every level keeps the task contract, and its expert knows how to play it."""

import asyncio
import json
from itertools import islice
from random import Random

import pytest

from rolltree.task.items import TaskError
from rolltree.task.nano import NanoTask, play, solve
from rolltree.task.registry import NANO, load_task
from rolltree.testing import task as contract

CASES = [(info.name, level) for info in NANO.values() for level in info.levels]
GARBAGE = [
    "",
    "\n",
    "=",
    "?",
    "ok\n",
    "x" * 500,
    "9" * 5000,
    "[" * 3000,
    "{}",
    "null",
    "-;,=1",
    "\x00é",
    "select 1\n",
    ">",
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def task(request) -> NanoTask:
    name, level = request.param
    return load_task(name, level=level)


def scripts(transcripts):
    return [[text for who, text in one.turns if who == "policy"] for one in transcripts]


def test_items_keep_the_contract(task):
    contract.check_task(task, 24)
    contract.check_items_repeat(task, 24)
    contract.check_splits_disjoint(task, 48)


def test_reference_solves_and_steps_are_functional(task):
    async def check():
        for item in islice(task.items("test"), 10):
            played = [await solve(task, item)] + [await play(task, item, Random(k), 0.5) for k in range(4)]
            reference, *others = scripts(played)
            await contract.check_reference(task, item, reference)
            for script in (reference, *others):
                await contract.check_functional(task, item, script)
            await contract.check_state_keys(task, item, [reference, *others])

    asyncio.run(check())


def test_garbage_is_judged_and_never_raises(task):
    async def check():
        for item in islice(task.items("train"), 3):
            await contract.check_verifier_is_total(task, item, GARBAGE)

    asyncio.run(check())


def test_demonstrations_err_in_varied_ways(task):
    """With noise, both successes and failures occur, and plays of one item differ."""

    async def check():
        scores, distinct = [], []
        for item in islice(task.items("train"), 30):
            played = [await play(task, item, Random(k), 0.6) for k in range(6)]
            scores += [(await task.verify(item, one.state, one.text)).score for one in played]
            distinct.append(len({one.text for one in played}))
        assert 0.02 < sum(scores) / len(scores) < 0.98
        assert sum(distinct) / len(distinct) > 1.2

    asyncio.run(check())


def test_items_survive_json(task):
    """An item can be stored and judged elsewhere: everything in it is plain data."""
    for item in islice(task.items("train"), 5):
        assert json.loads(json.dumps([item.answer, dict(item.meta)]))


def test_prompts_and_rollouts_are_short(task):
    async def check():
        for item in islice(task.items("train"), 50):
            text = (await solve(task, item)).text
            assert len(item.prompt) <= 80
            assert len(item.prompt) + len(text) <= 200

    asyncio.run(check())


def test_levels_that_do_not_exist_are_refused():
    for info in NANO.values():
        assert load_task(info.name).level in info.levels
        with pytest.raises(TaskError, match=f"{info.name} has levels 1-4, not 9: the nearest is 4"):
            load_task(info.name, level=9)


def test_no_question_of_one_level_is_a_test_question_of_another():
    for info in NANO.values():
        test = {
            item.prompt for level in info.levels for item in islice(load_task(info.name, level=level).items("test"), 60)
        }
        train = {
            item.prompt
            for level in info.levels
            for item in islice(load_task(info.name, level=level).items("train"), 60)
        }
        assert not test & train
