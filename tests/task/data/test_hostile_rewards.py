"""Rewards that misbehave in the middle of a run: told at once, in the log and by the doctor, never a reward of 0."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rolltree
from rolltree.doctor import examine
from rolltree.metrics.log import read_metrics
from rolltree.task.data.functions import RewardCrashError
from rolltree.task.foreign.parts import UnscorableError
from rolltree.task.protocol import Task
from rolltree.task.registry import load_task
from rolltree.training.config import TrainError
from tests.task.data.toy import rows

FUNCTIONS = """
import sys
from pathlib import Path

def told(completions, answer, **columns):
    return [1.0 if completions[0] == answer[0] else BAD[completions[0]]]

BAD = {"word": "wrong", "nothing": None, "far": 1e13, "endless": 10**400, "inf": float("inf"), "long": "x" * 10**6}

def parted(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": 1.0, "deep": {"endless": 10**400, "gap": float("nan")}.get(solution_str, 0)}

class Strange(dict):
    def items(self):
        raise OSError("gone")

def strange(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0 if solution_str == ground_truth else Strange()

def lists(completions, answer, **columns):
    return [1.0] if completions[0] == answer[0] else ["x" * 10**6] * 2

def leaves(completions, answer, **columns):
    return [1.0] if completions[0] == answer[0] else sys.exit(3)

async def leaves_later(completions, answer, **columns):
    return [1.0] if completions[0] == answer[0] else sys.exit(3)

def picky(completions, answer, **columns):
    mended = Path(__file__).with_name("mended").exists()
    return [1.0 if completions[0] == answer[0] else 0.0 if mended else "wrong"]

def interrupts(completions, answer, **columns):
    if completions[0] == answer[0]:
        return [1.0]
    raise KeyboardInterrupt
"""


@pytest.fixture
def task(tmp_path: Path) -> Any:
    """Makes the task of a reward of the file."""
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    lines = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(2, 9) for b in range(2, 9)]
    path = rows(tmp_path / "q.jsonl", *lines)
    return lambda name: load_task(f"{path}?reward={tmp_path / 'mine.py'}:{name}&max_tokens=4")


def judged(task: Task, text: str) -> float:
    item = next(iter(task.items("train")))
    return asyncio.run(task.verify(item, None, text if text else str(item.answer))).score


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("word", "'wrong'.*not a number"), ("nothing", "None.*not a number"), ("inf", "inf.*within"),
        ("far", r"10000000000000.0.*within ±1e\+12"), ("endless", "a number of 1329 bits.*within"),
        ("long", r"x… \(1,000,002 characters\).*not a number"),
    ],
)  # fmt: skip
def test_what_is_no_number_to_learn_from_is_no_outcome(task: Any, text: str, said: str) -> None:
    asked = task("told")
    assert judged(asked, "") == 1
    with pytest.raises(UnscorableError, match=said) as error:
        judged(asked, text)
    assert len(str(error.value)) < 500


def test_a_part_that_is_no_number_to_log_is_no_outcome(task: Any) -> None:
    asked = task("parted")
    assert judged(asked, "") == 1
    for text, said in (("endless", "a number of 1329 bits.*within"), ("gap", "nan.*not a number")):
        with pytest.raises(UnscorableError, match=f"the part 'deep' of the reward .*mine.py:parted answered {said}"):
            judged(asked, text)


@pytest.mark.parametrize("name", ["strange", "lists"])
def test_an_answer_that_cannot_be_read_is_a_crash_by_name(task: Any, name: str) -> None:
    asked = task(name)
    assert judged(asked, "") == 1
    with pytest.raises(RewardCrashError, match=f"the reward .*mine.py:{name} answered") as error:
        judged(asked, "else")
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", ["leaves", "leaves_later", "interrupts"])
def test_a_reward_that_leaves_the_program_has_crashed_by_name_and_line(task: Any, name: str) -> None:
    asked = task(name)
    for _ in range(2):  # the second finds who answers still there
        with pytest.raises(RewardCrashError, match=rf"mine.py:{name} crashed on item.*mine.py line \d+"):
            judged(asked, "else")
        assert judged(asked, "") == 1


def test_a_reward_with_words_for_wrong_answers_is_told_everywhere_and_the_run_starts_again(
    task: Any, tmp_path: Path
) -> None:
    """The check before the run asks about the reference alone, which is right."""
    out = tmp_path / "run"
    knobs: dict[str, Any] = {
        "steps": 2, "prompts": 2, "eval_items": 2, "eval_samples": 4, "eval_every": 2, "temperature": 3.0, "quiet": True
    }  # fmt: skip
    with pytest.raises(TrainError, match=r"picky answered 'wrong'.*not a number.*start again with --resume"):
        rolltree.train("grpo", "nano", task("picky"), out=out, **knobs)
    log = read_metrics(out / "metrics.jsonl")
    (why,) = {str(line["why"]) for line in log if line["kind"] == "failures" and line["step"] == 0}
    assert "picky answered 'wrong'" in why
    (finding,) = (f for f in examine(out).findings if f.name == "crashes")
    assert finding.severity == "critical"
    assert "picky answered 'wrong'" in finding.message
    (tmp_path / "mended").touch()
    run = rolltree.train("grpo", "nano", task("picky"), out=out, resume=True, **knobs)
    assert [line["step"] for line in run.metrics if line["kind"] == "train"] == [1, 2]
    assert not any(line["kind"] == "failures" for line in read_metrics(out / "metrics.jsonl"))
