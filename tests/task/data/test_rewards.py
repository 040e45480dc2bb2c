"""Rewards with weights: built in, TRL's and verl's functions, what solved means, and what is no number."""

import asyncio

import pytest

from rolltree.task.data.chat import Think, think_tags
from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from tests.task.data.toy import rows

FUNCTIONS = """
import asyncio

def brief(completions, target=None, **kwargs):
    assert target == ["t"], target
    return [1.0 / len(c) for c in completions]

async def late(prompts, completions):
    await asyncio.sleep(0)
    return [float(prompts[0] == "ask")]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str == ground_truth), "seen": extra_info["k"]}

def reward(completions, **kwargs):
    return [2.0]

def chatty(completions, **kwargs):
    return [float(completions[0][0]["role"] == "assistant")]

def crash(completions, **kwargs):
    raise KeyError("gone") if completions[0] == "bad" else ValueError("always")

def moody(completions, **kwargs):
    if completions[0] == "bad":
        raise KeyError("gone")
    return [float("nan") if completions[0] == "nan" else None if completions[0] == "none" else 1.0]

def word(completions, **kwargs):
    return ["good"]

def many(completions, **kwargs):
    return [1.0, 2.0]

def neither(text, answer):
    return 1.0
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    line = {"prompt": "ask", "answer": "42", "target": "t", "extra_info": {"k": 3}}
    path = rows(tmp_path / "q.jsonl", line, {**line, "prompt": "other"})
    return path, f"{tmp_path / 'mine.py'}"


def judge(task, text):
    item = next(i for i in (next(task.items("train")), next(task.items("test"))) if i.prompt == "ask")
    return asyncio.run(task.verify(item, None, text))


@pytest.mark.parametrize(
    ("reward", "right", "wrong"),
    [
        ("exact", " 42\n", "42."),
        ("exact", "<think>7</think> 42", "42<think>7</think>"),
        ("contains", "it is 42 or so", "24"),
        ("number", "3 apples make 42.0", "42 and then 3"),
        ("number", "so 42", "none"),
        ("math", r"\boxed{84/2}", r"\boxed{41}"),
        ("format", "<think>so</think>42", "so 42"),
        ("format", " <think>\nso</think>\n42", "<think>so</think>"),
        ("format", "<think></think>42", "<think>a</think><think>b</think>42"),
        (r"regex(\d\d)", "<think>42", "4 2"),
        ("regex(a:b)", "a:b", "a"),
    ],
)
def test_built_in_rewards(file, reward, right, wrong):
    task = load_task(file[0], reward=reward)
    assert (judge(task, right).score, judge(task, wrong).score) == (1, 0)


def test_weights_add_and_only_the_first_reward_says_what_is_solved(file):
    task = load_task(file[0], reward=["number:1.0", "regex(!):0.2", "contains:0.5"])
    verdict = judge(task, "42!")
    assert verdict.score == pytest.approx(1.7)
    assert dict(verdict.parts) == {"number": 1, "regex": 1, "contains": 1}
    assert verdict.solved is True
    missed = judge(task, "42 or 41!")
    assert (missed.score, missed.solved) == (pytest.approx(0.7), False)
    assert "number × 1 + regex × 0.2 + contains × 0.5; solved where number ≥ 1" in task.about


def test_a_weighted_sum_of_one_is_not_solved(file):
    verdict = judge(load_task(file[0], reward=["exact", "contains:2.0"]), "42!")
    assert (verdict.score, verdict.solved) == (2.0, False)
    assert judge(load_task(file[0], reward="contains:0.1"), "42!").solved is True


def test_functions_as_trl_and_verl_call_them(file):
    path, mine = file
    task = load_task(path, reward=[f"{mine}:compute_score", f"{mine}:brief:0.5", f"{mine}:late", f"{mine}:reward"])
    verdict = judge(task, "42")
    assert dict(verdict.parts) == {"compute_score": 1, "seen": 3, "brief": 0.5, "late": 1, "mine_reward": 2}
    assert verdict.score == 1 + 0.25 + 1 + 2
    assert verdict.solved is True


def test_the_threshold_of_solved_can_be_set(file):
    path, mine = file
    task = load_task(path, reward=f"{mine}:reward", solved_at=3)
    assert judge(task, "x").solved is False


def test_conversational_data_gets_conversational_completions(tmp_path, file):
    path = rows(tmp_path / "c.jsonl", *({"prompt": [{"role": "user", "content": p}], "answer": "1"} for p in "ab"))
    task = load_task(path, reward=f"{file[1]}:chatty")
    assert asyncio.run(task.verify(next(task.items("train")), None, "x")).score == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bad", r"the reward .*mine.py:moody crashed on item '.*': KeyError: 'gone' \(mine.py line 26\)"),
        ("nan", r"the reward moody answered nan for item '.*', not a number"),
        ("none", r"the reward moody answered None for item '.*', not a number"),
    ],
)
def test_what_is_no_number_is_raised_and_never_zero(file, text, says):
    task = load_task(file[0], reward=f"{file[1]}:moody")
    assert judge(task, "fine").score == 1
    with pytest.raises(Exception, match=says):
        judge(task, text)


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        ("exat", "there is no reward 'exat': did you mean 'exact'?"),
        ("MINE:word", "the reward word answered 'good' for item"),
        ("MINE:crash", "ValueError: always (mine.py line 22); it was tried with the reference answer of"),
        ("MINE:many", "it must give a list with one number for each completion"),
        ("MINE:neither", "takes (text, answer); write it as TRL does"),
        ("MINE:nothing", "has no 'nothing'"),
        ("gone.py:f", "there is no file gone.py"),
        ("exact(x)", "the reward exact takes nothing in brackets"),
        ("regex(()", "is no regular expression"),
        ("exact:nan", "the weight of --reward exact:nan is no number"),
        (["exact", "exact:2"], "two rewards are called 'exact'"),
    ],
)
def test_a_reward_that_cannot_judge_is_refused_before_anything_runs(file, reward, says):
    reward = reward.replace("MINE", file[1]) if isinstance(reward, str) else reward
    with pytest.raises(TaskError) as error:
        load_task(file[0], reward=reward)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unfinished_thought_holds_no_answer():
    think = Think()
    assert think.answer("<think>42", "p") == ""
    assert think.answer("42", "assistant\n<think>\n") == ""
    assert think.answer("so</think>42", "assistant\n<think>\n") == "42"
    assert think.well_formed("so</think>42", "assistant\n<think>\n")
    assert think_tags("off").answer("<think>42") == "<think>42"
    assert think_tags("[t],[/t]").answer("[t]x[/t]y") == "y"
    with pytest.raises(TaskError, match="is no pair of tags"):
        think_tags("<think>")


def test_a_judge_gains_by_naming_the_first_wrong_step_and_less_the_further_it_is_off(tmp_path):
    def told(answer, text, steps=4):
        line = {"prompt": "ask", "answer": answer, "steps": steps}
        task = load_task(
            str(rows(tmp_path / f"{answer}.jsonl", line, {**line, "prompt": "other"})), reward="first_error"
        )
        return judge(task, text)

    flawed = [told(2, text).score for text in ("step 2", "3", "It is 0.", "-1", "none", "9", "1, no, 2")]
    assert flawed == [1.0, 0.75, 0.5, -1.0, -1.0, -1.0, 1.0]
    assert [told(-1, text).score for text in ("-1", "0", "")] == [1.0, -1.0, -1.0]
    assert told(2, "step 2").solved
    assert not told(2, "3").solved
    with pytest.raises(TaskError, match="steps"):
        told(0, "0", steps=0)


@pytest.mark.parametrize(
    ("reward", "answer", "said"),
    [
        ("math", True, "line 2: the answer 'True' is no mathematical expression"),
        ("math", "Paris", "line 2: the answer 'Paris' is no mathematical expression"),
        ("number", "none", "line 2: the answer 'none' is no number"),
        ("first_error", "here", "line 2: the answer of item"),
    ],
)
def test_a_reference_that_its_reward_cannot_read_is_refused_by_its_line(tmp_path, reward, answer, said):
    if reward == "math":
        pytest.importorskip("math_verify")
    good, bad = {"prompt": "a", "answer": "1", "steps": 2}, {"prompt": "b", "answer": answer, "steps": 2}
    with pytest.raises(TaskError, match=said):
        load_task(str(rows(tmp_path / "odd.jsonl", good, bad)), reward=["format", reward])
    assert load_task(str(rows(tmp_path / "text.jsonl", good, bad)), reward="exact").count("train")


def test_expressions_without_a_digit_are_mathematics_too(tmp_path):
    pytest.importorskip("math_verify")
    assert load_task(
        str(rows(tmp_path / "x.jsonl", {"prompt": "a", "answer": "$x+y$"}, {"prompt": "b", "answer": "2"}))
    )
