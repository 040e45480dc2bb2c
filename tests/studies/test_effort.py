"""The task of effort: its expert obeys the token, more effort is right more often, lengths have a heavy tail."""

import asyncio
from itertools import islice
from random import Random

import numpy as np
import pytest

from rolltree.task.nano.expert import NanoTask, play
from rolltree.task.registry import load_task
from studies.effort import EFFORTS, Effort

TASK = Effort(asked="yes")
FREE = Effort()


def drawn(count, task=TASK):
    return list(islice(task.items("train", 0), count))


def judged(item, text):
    return asyncio.run(TASK.verify(item, None, text))


def test_the_expert_solves_every_item_and_obeys():
    for item in drawn(60):
        verdict = judged(item, TASK.act(item, None, Random(0)))
        assert verdict.score == 1.0
        assert verdict.parts == {"passes": float(item.meta["effort"]), "obeyed": 1.0}
        assert item.prompt.startswith(f"{item.meta['effort']}|")
        assert item.meta["share"] == (item.meta["effort"] + 1) / 4


def test_a_free_answer_begins_with_the_effort_that_it_picks():
    seen = set()
    for item in drawn(60, FREE):
        text = FREE.act(item, None, Random(item.id))
        verdict = judged(item, text)
        assert verdict.score == 1.0
        assert verdict.parts == {"passes": float(text[0]), "obeyed": 1.0}
        assert "|" not in item.prompt
        seen.add(text[0])
    assert seen == set("0123")
    assert judged(item, text[2:]).parts["obeyed"] == 0.0, "no effort was said"
    assert judged(item, text[2:]).score == 1.0, "what was prefilled is not needed to judge"


def test_half_of_the_items_may_be_asked():
    share = np.mean(["effort" in item.meta for item in drawn(400, Effort(asked="both"))])
    assert 0.4 < share < 0.6


def test_more_effort_is_right_more_often_and_costs_more():
    rng, items = Random(1), drawn(1200)
    right = {effort: [] for effort in range(EFFORTS)}
    length = {effort: [] for effort in range(EFFORTS)}
    for item in items:
        text = asyncio.run(play(TASK, item, rng, 0.1)).text
        right[item.meta["effort"]].append(judged(item, text).score)
        length[item.meta["effort"]].append(len(text))
    rates = [np.mean(right[effort]) for effort in range(EFFORTS)]
    assert rates[0] < rates[1] < rates[3]
    assert np.mean(length[3]) > 2.5 * np.mean(length[1])
    worked = [n for effort in (1, 2, 3) for n in length[effort]]
    assert np.quantile(worked, 0.99) > 4 * np.median(worked), "a heavy tail"
    assert max(worked) <= TASK.max_tokens


@pytest.mark.parametrize(
    ("text", "score"),
    [("=12", 1.0), ("=13", 0.0), ("12", 0.0), ("", 0.0), ("=--12", 0.0), ("=1²", 0.0), ("5+7=12;=12", 1.0)],
)
def test_the_last_result_counts(text, score):
    item = next(i for i in drawn(50))
    item = type(item)(item.id, "0|5+7=", 12, 1, {"terms": (5, 7), "effort": 0})
    assert judged(item, text).score == score


def test_it_is_loaded_by_its_file_and_can_be_imitated():
    task = load_task("studies/effort.py:Effort", level=1)
    assert isinstance(task, NanoTask)
    assert next(task.items("test")).prompt == next(FREE.items("test")).prompt
    asked = load_task("studies/effort.py:Effort?asked=yes", level=1)
    assert next(asked.items("test")).prompt == next(TASK.items("test")).prompt
