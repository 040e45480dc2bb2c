"""One's own data from the command line: what is said, what is shown, and what stops a run."""

import json
import shlex

import pytest

from rolltree.cli import main
from rolltree.compare.runner import Conditions, files_of
from rolltree.doctor.run import open_run
from rolltree.task.data.flags import DataFlags, folder_name
from rolltree.task.registry import load_task

REWARDS = """
def crash(completions, answer, **kwargs):
    if completions[0] != answer[0]:
        raise KeyError("gone")
    return [1.0]
def sometimes(completions, **kwargs):
    return [1.0 / (len(completions[0]) < 6)]
"""
LONG = """
def essay(completions, answer, **columns):
    if completions[0] != answer[0]:
        raise ValueError("word " * 5000)
    return [1.0]
def loud(completions, **columns):
    print("loud " * 5000, end="")
    return [len(completions[0])]
"""
SMALL = "--steps 2 --prompts 4 --group 2 --eval-every 2 --eval-samples 2 --threads 1 --doctor 1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ({"question": f"{a}+{b}=", "answer": a + b} for a in range(1, 6) for b in range(1, 5))
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "mine.py").write_text(REWARDS)
    return tmp_path


def run(words):
    return main(shlex.split(words))


def test_rollout_says_what_the_data_is_and_shows_the_first_prompt(here, capsys):
    asked = "rollout grpo --task sums.jsonl --reward contains --reward 'regex(=):0.2' --group 2 --items 2"
    assert run(asked) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "training items, " in said
    assert "(one in 8 by the prompt's hash)" in said
    assert "contains × 1 + regex × 0.2; solved where contains ≥ 1" in said
    assert "the first prompt as the model sees it: 4 tokens of row-" in said
    assert "|+|" in said


def test_a_run_over_a_file_counts_epochs_and_asks_each_held_out_item_once(here, capsys):
    assert run(f"train grpo --task sums.jsonl --reward contains --reward 'regex(=):0.2' {SMALL} --out r --items 8") == 0
    said = " ".join(capsys.readouterr().err.split())
    lines = [json.loads(line) for line in (here / "r" / "metrics.jsonl").read_text().splitlines()]
    held = load_task("sums.jsonl", reward="contains").count("test")
    assert f"every evaluation asks {held} of {held} distinct held-out items, each 2 times" in said
    assert [line["eval/items"] for line in lines if line["kind"] == "eval"] == [held, held]
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["budget/epoch"] for line in trained] == [0.5, 1.0]
    assert all("reward/part/contains" in line and "reward/part/regex" in line for line in trained)
    assert "reward/part/solved" not in trained[0]
    assert trained[0]["reward/solved"] == trained[0]["reward/part/contains"]
    prompt = json.loads((here / "r" / "prompt.json").read_text())
    assert "".join(token["text"] for token in prompt["tokens"]) == prompt["text"]


def test_a_crashing_reward_is_said_at_once_logged_and_found_by_the_doctor(here, capsys):
    assert run(f"train grpo --task sums.jsonl --reward mine.py:sometimes {SMALL} --out r") == 0
    said = " ".join(capsys.readouterr().err.split())
    cause = "the reward mine.py:sometimes crashed on item"
    assert said.index("rollouts failed; the first: the verifier: RewardCrashError: " + cause) < said.index("step 1/2")
    assert "ZeroDivisionError: float division by zero (mine.py line 7)" in said
    lines = [json.loads(line) for line in (here / "r" / "metrics.jsonl").read_text().splitlines()]
    assert all(cause in line["why"] for line in lines if line["kind"] == "failures")
    assert {line["step"] for line in lines if line["kind"] == "failures"} >= {0, 1}
    assert cause in open_run(here / "r").causes()[0][1]
    assert run("doctor r") in (0, 1, 2)
    assert cause in " ".join(capsys.readouterr().out.split())


def test_where_nothing_can_be_judged_a_run_ends_and_a_rollout_fails(here, capsys):
    (here / "never.jsonl").write_text('{"prompt": "1+1=", "answer": "no"}\n{"prompt": "1+2=", "answer": "no"}')
    assert run(f"train grpo --task never.jsonl --reward mine.py:crash {SMALL} --out r") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "the first: the verifier: RewardCrashError: the reward mine.py:crash crashed on item" in said
    assert "mend the task or the engine" in said
    assert run("rollout grpo --task never.jsonl --reward mine.py:crash --items 1 --group 2 --json") == 1
    out = capsys.readouterr()
    assert "KeyError: 'gone' (mine.py line 4)" in json.loads(out.out)["why"]
    assert "2 of 2 rollouts failed" in out.err
    assert run("solve best_of_n --task never.jsonl --items-from train --reward mine.py:crash --items 2 --n 2") == 1
    out = capsys.readouterr()
    assert "KeyError: 'gone' (mine.py line 4)" in out.err
    assert "4 of 4 rollouts failed; the first: the verifier: RewardCrashError" in out.err
    assert all("KeyError" in json.loads(line)["why"] for line in out.out.splitlines())


def test_a_long_exception_is_cut_where_it_is_read_and_whole_in_the_log(here, capsys):
    (here / "long.py").write_text(LONG)
    (here / "never.jsonl").write_text("".join(f'{{"prompt": "{i}+1=", "answer": "no"}}\n' for i in range(9)))
    assert run("rollout grpo --task never.jsonl --reward long.py:essay --items 1 --group 2") == 1
    out = capsys.readouterr()
    assert len(out.err) < 1000
    assert "characters left out) … " in out.err
    assert "(long.py line 4)" in out.err
    assert "word " * 300 not in " ".join(out.out.split())
    assert run("rollout grpo --task never.jsonl --reward long.py:essay --items 1 --group 2 --json") == 1
    assert "word " * 1000 in json.loads(capsys.readouterr().out)["why"]
    assert run(f"train grpo --task never.jsonl --reward long.py:essay {SMALL} --out r") == 2
    assert len(capsys.readouterr().err) < 6000
    lines = [json.loads(line) for line in (here / "r" / "metrics.jsonl").read_text().splitlines()]
    assert all("word " * 1000 in line["why"] for line in lines if line["kind"] == "failures")


def test_what_a_reward_prints_is_cut_where_the_run_prints_and_whole_in_its_log(here, capsys):
    (here / "long.py").write_text(LONG)
    assert run(f"train grpo --task sums.jsonl --reward long.py:loud {SMALL} --out r") == 0
    out = capsys.readouterr()
    assert "loud " * 300 in out.out
    assert "loud " * 1000 not in out.out
    assert "the reward long.py:loud printed 25,000 characters, 2,000 of them shown; log.txt has the rest" in out.out
    assert "loud " * 4999 in (here / "r" / "log.txt").read_text()
    print("x" * 3000)  # what no reward prints stands as it is
    assert capsys.readouterr().out == "x" * 3000 + "\n"


def test_items_of_frozen_arms_that_nothing_judged_are_not_counted_as_wrong(here, capsys):
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "odd": i % 2} for i in range(30)]
    (here / "half.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in reversed(rows)))
    (here / "half.py").write_text(
        "def half(completions, answer, odd, **columns):\n"
        "    return [float(completions[0] == answer[0]) if completions[0] == answer[0] or not odd[0] else 1 / 0]\n"
    )
    asked = "compare best_of_n --frozen --budget 4k --eval-items 8 --seeds 1 --holdout 0.5 --max-tokens 3"
    assert run(f"{asked} --task half.jsonl --reward half.py:half") == 0
    unjudged = 0
    for trace in (here / "runs" / "cache").glob("*/trace.json"):
        lines = (trace.parent / "run" / "answers.jsonl").read_text().splitlines()
        scores = {line["id"]: line["score"] for line in map(json.loads, lines)}
        assert set(json.loads(trace.read_text())["items"]) == {i for i, score in scores.items() if score is not None}
        unjudged += sum(score is None for score in scores.values())
    assert unjudged


def test_frozen_arms_that_nothing_judged_are_no_zero(here, capsys):
    (here / "never.jsonl").write_text("".join(f'{{"prompt": "{i}+1=", "answer": "no"}}\n' for i in range(9)))
    asked = "compare best_of_n --frozen --budget 2k --eval-items 2 --seeds 1 --holdout 0.3 --task"
    assert run(f"{asked} never.jsonl --reward mine.py:crash") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "nothing could be judged, because " in said
    assert "rollouts failed; the first: the verifier: RewardCrashError" in said
    assert run(f"{asked} sums.jsonl --reward none") == 2
    assert "the 2 items of sums.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train grpo --task sums.jsonl --reward exact --holdout 0 --out r", "has no held-out items to evaluate on"),
        ("train grpo --task sums.jsonl --reward exat --out r", "there is no reward 'exat'"),
        ("train grpo --task countdown --reward exact --out r", "task 'countdown' has no knob 'reward'"),
        ("rollout grpo --task sums.jsonl --reward exact --system Hi", "--system needs a chat template"),
        ("rollout grpo --task none.jsonl --reward exact", "there is no file none.jsonl"),
        ("rollout grpo --task hf:./empty --reward exact", "hf:./empty cannot be had"),
        ("compare grpo rloo --task sums.jsonl --reward exat --budget 1k", "there is no reward 'exat'"),
    ],
)
def test_bad_input_is_one_sentence_before_work_starts(here, words, says, capsys):
    (here / "empty").mkdir()
    assert run(words) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert says in said[0]


def test_flags_are_knobs_behind_the_name(here):
    flags = DataFlags(prompt="question", reward=("number:1.0", "regex(a&b=c?d%):0.2"), solved_at=0.5, think="off")
    name = flags.address("sums.jsonl")
    task = load_task(name)
    assert [reward.name for reward in task.rewards.rewards] == ["number", "regex"]
    assert task.rewards.solved_at == 0.5
    assert DataFlags().address("countdown?level=2") == "countdown?level=2"
    assert DataFlags(reward=("exact",)).address("sums.jsonl?max_tokens=3").endswith("?max_tokens=3&reward=exact")
    assert DataFlags(system="5").address("q.jsonl") == 'q.jsonl?system="5"'
    assert folder_name("a/b/sums.jsonl?reward=exact") == "sums"


def test_a_comparison_depends_on_the_content_of_all_files(here):
    name = DataFlags(reward=("contains", "mine.py:crash:0.5"), holdout="held.jsonl").address("sums.jsonl")
    (here / "held.jsonl").write_text("{}")
    before = files_of(Conditions(name, 1.0))
    assert set(before) == {"sums.jsonl", "mine.py", "held.jsonl"}
    (here / "mine.py").write_text(REWARDS + "\n")
    assert files_of(Conditions(name, 1.0))["mine.py"] != before["mine.py"]
