from __future__ import annotations

import asyncio
import importlib
import sys
from random import Random

import pytest

import rolltree
from rolltree.integrations.data import distinct_items, items_of_rows, prompt_rows, read_verl, text_of, write_verl
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.finish import finish
from rolltree.integrations.rewards import RewardTask, trl_reward, verl_reward
from rolltree.integrations.trl import TreeRollouts
from rolltree.task.items import TaskError
from rolltree.testing.task import check_items_repeat, check_splits_disjoint, check_task
from tests.adapt.small import items_of

TASK = rolltree.load_task("arithmetic")
ROWS = [{"prompt": f"{a}+{b}=", "answer": str(a + b), "operands": 2} for a in range(8) for b in range(8)]


def right_or_wrong(prompts, completions, completion_ids, answer, **columns):
    return [float(c.strip() == a) for c, a in zip(completions, answer, strict=True)]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str.strip() == ground_truth), "acc": 1.0}


@pytest.mark.parametrize(("reward", "signature"), [(right_or_wrong, "trl"), (compute_score, "verl")])
def test_a_foreign_reward_function_is_the_verifier_of_a_sound_task(reward, signature):
    task = RewardTask("sums", items_of_rows(ROWS), reward, signature=signature, max_tokens=8)
    check_task(task)
    check_items_repeat(task)
    check_splits_disjoint(task, 64)
    item = next(task.items("train"))
    assert finish(task.verify(item, None, f" {item.answer} ")).score == 1
    assert finish(task.verify(item, None, "no")).score == 0


def test_a_rollout_without_a_score_is_failed_and_not_worth_zero():
    task = RewardTask("sums", items_of_rows(ROWS), lambda **_: [None], max_tokens=4)
    forest = rolltree.grow("grpo", "nano", task, items=2)
    leaves = [leaf for _, leaf in forest.leaves()]
    assert {leaf.status for leaf in leaves} == {"failed"}
    assert all("reward" not in leaf.scores for leaf in leaves)


def test_an_asynchronous_reward_function_is_awaited():
    async def reward(**_):
        await asyncio.sleep(0)
        return [0.25]

    task = RewardTask("sums", items_of_rows(ROWS), reward)
    assert finish(task.verify(next(task.items("train")), None, "")).score == 0.25


def test_a_verifier_is_a_reward_function_for_both_trainers():
    items = items_of(TASK, 2)
    texts = [TASK.act(item, None, Random(0)) for item in items]
    ours = trl_reward(TASK, items)
    chat = [[{"role": "user", "content": item.prompt}] for item in items]
    said = [[{"role": "assistant", "content": text}] for text in texts]
    assert ours(prompts=[i.prompt for i in items], completions=texts, completion_ids=[[1], [1]], level=[2, 2]) == [1, 1]
    assert ours(prompts=chat, completions=said) == [1, 1]
    assert ours(prompts=[items[0].prompt], completions=["?"]) == [0]
    score = verl_reward(TASK, items)
    assert score("arithmetic", texts[0], "", {"item": items[0].id})["score"] == 1
    with pytest.raises(AdaptError, match="none of the 2 items"):
        score("arithmetic", "1", "", {"item": "other"})
    with pytest.raises(AdaptError, match="depends on its environment"):
        trl_reward(rolltree.load_task("lookup"), [])


def test_items_survive_both_formats(tmp_path):
    items = items_of(TASK, 5)
    again = items_of_rows(prompt_rows(items))
    back = read_verl(write_verl(items, tmp_path / "train.parquet", "arithmetic"))
    chat = items_of_rows(prompt_rows(items, chat=True))
    for there in (again, back, chat):
        assert [(i.id, i.prompt, i.answer) for i in there] == [(i.id, i.prompt, str(i.answer)) for i in items]
    assert back[0].meta["data_source"] == "arithmetic"
    assert len(read_verl(tmp_path / "train.parquet", limit=2)) == 2


def test_prompts_are_told_apart_and_an_exhausted_task_says_so():
    items = distinct_items(rolltree.load_task("lookup"), 40)
    assert len({item.prompt for item in items}) == 40
    with pytest.raises(AdaptError, match="prompts that differ, not 100000"):
        distinct_items(RewardTask("sums", items_of_rows(ROWS), right_or_wrong), 100_000)


def test_bad_rows_are_refused_by_their_number():
    with pytest.raises(AdaptError, match="row 1 has no 'answer'"):
        items_of_rows([ROWS[0], {"prompt": "x"}])
    with pytest.raises(AdaptError, match="row 0 has no prompt"):
        items_of_rows([{"answer": "x"}])
    dialogue = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1+1="}]
    with pytest.raises(AdaptError, match="2 messages"):
        items_of_rows([{"prompt": dialogue, "answer": "2"}])
    assert text_of(dialogue, "it", lambda m: "|".join(x["content"] for x in m)) == "be brief|1+1="
    with pytest.raises(AdaptError, match="no file"):
        read_verl("/nowhere.parquet")
    with pytest.raises(TaskError, match="has no test items"):
        next(RewardTask("one", items_of_rows([{**ROWS[0], "split": "train"}]), right_or_wrong).items("test"))


def test_a_coroutine_is_finished_from_within_a_running_loop():
    async def two():
        return 2

    async def outer():
        return finish(two())

    assert asyncio.run(outer()) == finish(two()) == 2


@pytest.mark.parametrize("module", ["trainer", "worker"])
def test_without_trl_the_adapter_names_the_extra(monkeypatch, module):
    for name in [n for n in sys.modules if n == "trl" or n.startswith("trl.")] or ["trl"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in (module, "samples"):
        monkeypatch.delitem(sys.modules, f"rolltree.integrations.trl.{name}", raising=False)
    with pytest.raises(AdaptError, match=r"rolltree\[trl\]"):
        importlib.import_module(f"rolltree.integrations.trl.{module}")
    # Rollouts, data sets and settings do not need it.
    assert TreeRollouts("treepo", TASK, items_of(TASK, 2)).parts.name == "treepo"
