"""The contract checks catch tasks that break the contract: each fault is planted in a task that is otherwise right."""

import asyncio
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from rolltree.task.nano import Lookup, play, solve
from rolltree.testing import task as contract


class Faulty:
    """A nano task with some of its methods replaced."""

    def __init__(self, task, **faults):
        self._task = task
        self._faults = faults

    def __getattr__(self, name):
        return self._faults.get(name, getattr(self._task, name))


TASK = Lookup()
ITEM = next(TASK.items("train"))
SCRIPT = [text for who, text in asyncio.run(solve(TASK, ITEM)).turns if who == "policy"]


def fails(check, match):
    with pytest.raises(AssertionError, match=match):
        asyncio.run(check) if asyncio.iscoroutine(check) else check()


def test_the_sound_task_passes():
    asyncio.run(contract.check_functional(TASK, ITEM, SCRIPT))
    asyncio.run(contract.check_reference(TASK, ITEM, SCRIPT))
    assert asyncio.run(contract.check_state_keys(TASK, ITEM, [SCRIPT, SCRIPT]))


def test_items_that_change_are_caught():
    rng = Random(0)
    faulty = Faulty(TASK, items=lambda split, seed=0: TASK.items(split, rng.randrange(99)))
    fails(lambda: contract.check_items_repeat(faulty), "differ between two streams")
    deaf = Faulty(TASK, items=lambda split, seed=0: TASK.items(split, 0))
    fails(lambda: contract.check_items_repeat(deaf), "the seed changes no")


def test_leaks_between_the_splits_are_caught():
    faulty = Faulty(TASK, items=lambda split, seed=0: TASK.items("train", seed))
    fails(lambda: contract.check_splits_disjoint(faulty), "is in both splits")


def test_shared_ids_and_missing_answers_are_caught():
    faulty = Faulty(TASK, items=lambda *_: (replace(one, id="same") for one in TASK.items("train")))
    fails(lambda: contract.check_task(faulty), "two different prompts share the id same")
    faulty = Faulty(TASK, items=lambda *_: (replace(one, answer=None) for one in TASK.items("train")))
    with pytest.raises(ValueError, match="has no answer"):
        contract.check_task(faulty)


def test_steps_that_depend_on_history_are_caught():
    calls = []

    async def step(item, state, text):
        calls.append(text)
        reply = await TASK.step(item, state, text)
        return replace(reply, text=reply.text + "!" * len(calls))

    fails(contract.check_functional(Faulty(TASK, step=step), ITEM, SCRIPT), "answered differently the second time")


def test_steps_that_change_the_given_state_are_caught():
    async def step(item, state, text):
        state["turns"] += 1
        return replace(await TASK.step(item, TASK.start(item)[0], text), state=state, done=False)

    faulty = Faulty(TASK, step=step, start=lambda item: ({"turns": 0}, "k") if True else None)
    fails(contract.check_functional(faulty, ITEM, SCRIPT), "changed the state it was given")


def test_keys_that_hide_a_difference_are_caught():
    async def step(item, state, text):
        return replace(await TASK.step(item, state, text), state_key="same")

    start = lambda item: (TASK.start(item)[0], "same")  # noqa: E731
    faulty = Faulty(TASK, step=step, start=start)
    fails(contract.check_state_keys(faulty, ITEM, [SCRIPT]), "states of the key 'same'")


def test_wrong_references_are_caught():
    fails(contract.check_reference(TASK, ITEM, [*SCRIPT[:-1], "=zzz\n"]), "the reference solution scores 0.0")
    wrong = list(islice(TASK.items("train"), 5))
    for item in wrong:
        played = asyncio.run(play(TASK, item, Random(0), 0.0))
        asyncio.run(contract.check_reference(TASK, item, [text for who, text in played.turns if who == "policy"]))
