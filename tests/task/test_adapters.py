"""Foreign task sources: reasoning-gym data sets and files of math answers."""

import asyncio
import json
import sys
from itertools import islice

import pytest

from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from rolltree.testing import task as contract


def write(tmp_path, *lines):
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return f"jsonl:{path}"


def judge(task, item, text):
    return asyncio.run(task.verify(item, None, text))


def test_answers_are_compared_by_value(tmp_path):
    pytest.importorskip("math_verify")
    task = load_task(write(tmp_path, {"prompt": "half of one?", "answer": "1/2", "split": "train", "level": 3}))
    item = next(task.items("train"))
    assert item.level == 3
    assert judge(task, item, r"it is \boxed{\frac{1}{2}}").score == 1
    assert judge(task, item, "0.5").score == 1
    wrong = judge(task, item, r"\boxed{2}")
    assert (wrong.score, wrong.answer) == (0, "2")
    assert wrong.why.startswith("found 2 instead of 1/2")
    assert judge(task, item, "I do not know").answer is None


def test_an_expression_that_never_ends_is_wrong_and_holds_nobody_up(tmp_path):
    pytest.importorskip("math_verify")
    task = load_task(write(tmp_path, {"prompt": "p", "answer": "3", "split": "train"}))
    item = next(task.items("train"))

    async def main():
        endless = asyncio.ensure_future(task.verify(item, None, r"\boxed{9^{9^{9^{9}}}}"))
        good = await task.verify(item, None, r"\boxed{3}")
        assert (good.score, endless.done()) == (1, False)
        return await endless

    verdict = asyncio.run(main())
    assert verdict.score == 0
    assert "computing" in verdict.why
    assert judge(task, item, "3").score == 1


def test_equal_values_are_one_answer_for_votes(tmp_path):
    pytest.importorskip("math_verify")
    task = load_task(write(tmp_path, {"prompt": "p", "answer": "1/2", "split": "train"}))
    item = next(task.items("train"))
    assert judge(task, item, r"$\frac{2}{4}$").answer == judge(task, item, r"$\frac{1}{2}$").answer


def test_files_keep_the_task_contract(tmp_path):
    pytest.importorskip("math_verify")
    rows = [{"prompt": f"{k}+1=?", "answer": k + 1} for k in range(60)]
    task = load_task(write(tmp_path, *rows))
    contract.check_task(task)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 100)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{oops", "line 2 is not JSON: Expecting property name"),
        ("[1]", "line 2 must be an object with prompt and answer, not list"),
        ({"prompt": "x"}, "line 2: field 'answer' is missing or empty"),
        ({"prompt": "x", "answer": None}, "line 2: field 'answer' is missing or empty"),
        ({"answer": "x"}, "line 2: field 'prompt' is missing or empty"),
        ({"prompt": "1\ud800", "answer": "x"}, "line 2: field 'prompt' holds half a character"),
        ({"prompt": 3, "answer": "x"}, "line 2: field 'prompt' must be text or a list of messages, not int"),
        ({"prompt": "x", "answer": [1]}, "line 2: field 'answer' must be text or a number, not list"),
        ({"prompt": "x", "answer": "1", "level": "hard"}, "line 2: field 'level' must be a whole number, not 'hard'"),
        ({"prompt": "x", "answer": "1", "split": "dev"}, "line 2: field 'split' must be 'train' or 'test', not 'dev'"),
        ({"prompt": "other", "answer": "1", "id": "a"}, "names two items 'a'"),
    ],
)
def test_bad_lines_are_named_by_number_and_field(tmp_path, line, says):
    pytest.importorskip("math_verify")
    with pytest.raises(TaskError) as error:
        load_task(write(tmp_path, {"prompt": "good", "answer": "1", "id": "a"}, line))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_files_and_empty_splits_are_refused(tmp_path):
    pytest.importorskip("math_verify")
    with pytest.raises(TaskError, match="there is no file /nowhere"):
        load_task("jsonl:/nowhere")
    task = load_task(write(tmp_path, {"prompt": "x", "answer": "1", "split": "train"}))
    with pytest.raises(TaskError, match="has no test items"):
        next(task.items("test"))


def test_an_unreadable_reference_is_refused_before_it_is_a_zero(tmp_path):
    pytest.importorskip("math_verify")
    with pytest.raises(TaskError, match=r"line 1: the answer '\(\(\(' is no mathematical expression"):
        load_task(write(tmp_path, {"prompt": "x", "answer": "(((", "split": "train"}))


@pytest.mark.parametrize("name", ["leg_counting", "gcd", "letter_counting", "basic_arithmetic"])
def test_reasoning_gym_data_sets_keep_the_task_contract(name):
    pytest.importorskip("reasoning_gym")
    task = load_task(f"reasoning-gym:{name}")
    contract.check_task(task, 32)
    contract.check_items_repeat(task, 32)
    contract.check_splits_disjoint(task, 64)
    item = next(task.items("test"))
    assert judge(task, item, f" {item.answer['answer']}\n").score == 1
    assert judge(task, item, "").score < 1


def test_reasoning_gym_levels_follow_the_curriculum():
    pytest.importorskip("reasoning_gym")
    lengths = []
    for level in (1, 4):
        task = load_task("reasoning-gym:chain_sum", level=level)
        lengths.append(sum(len(item.prompt) for item in islice(task.items("train"), 50)))
    assert lengths[1] > lengths[0] * 1.1


def test_reasoning_gym_refusals():
    pytest.importorskip("reasoning_gym")
    with pytest.raises(TaskError, match=r"no data set 'chain_summ'; did you mean 'chain_sum'"):
        load_task("reasoning-gym:chain_summ")
    with pytest.raises(TaskError, match="refuses its configuration"):
        load_task("reasoning-gym:chain_sum", colour="red")


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("reasoning-gym:chain_sum", "reasoning_gym", "reasoning-gym"), ("jsonl:x", "math_verify", "math")],
)
def test_a_missing_library_is_one_sentence_naming_the_extra(name, library, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"pip install 'rolltree\[{extra}\]'"):
        load_task(name)


def test_texts_that_a_data_set_evaluates_reach_nothing_and_end(tmp_path):
    pytest.importorskip("reasoning_gym")
    task = load_task("reasoning-gym:countdown")
    item = next(task.items("train"))
    assert judge(task, item, item.answer["metadata"]["expression"]).score == 1
    judge(task, item, f"__import__('os').system('touch {tmp_path}/reached')")
    judge(task, item, f"open('{tmp_path}/reached', 'w')")
    assert not (tmp_path / "reached").exists()
    assert "computing" in judge(task, item, "9**9**9**9").why
    assert judge(task, item, item.answer["metadata"]["expression"]).score == 1
