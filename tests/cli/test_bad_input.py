"""What is wrong with somebody's own data, model or reward is one sentence, before any work, with a way out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import rolltree
from rolltree.cli import main

REWARDS = """
def words(completions, **columns):
    return ["good" for _ in completions]


def bare(completions, **columns):
    return "good"


def part(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": 1.0, "deep": 10**400}


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return "0.5"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
    for name, told in (("good", rows), ("gap", [*rows, {"question": "9+1=", "answer": " "}])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    (tmp_path / "mine.py").write_text(REWARDS)
    return tmp_path


def told(arguments: Sequence[str], verb: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence with which a command refuses."""
    assert main([verb, "grpo", *arguments, "--out", "run"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    assert not Path("run").exists()
    return said[0]


def data(name: str = "good") -> list[str]:
    return ["--task", f"jsonl:{name}.jsonl", "--prompt", "question", "--answer", "answer"]


@pytest.mark.parametrize("verb", ["train", "rollout"])
@pytest.mark.parametrize(("reward", "value"), [("words", "'good'"), ("bare", "'good'"), ("compute_score", "'0.5'")])
def test_a_reward_that_returns_a_string(
    reward: str, value: str, verb: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told([*data(), "--reward", f"mine.py:{reward}"], verb, capsys)
    assert f"the reward {reward} answered {value} for item" in said
    assert said.endswith("not a number; let it return one, as 0.5")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("latin.jsonl", "latin.jsonl is not UTF-8 text (invalid continuation byte at byte 15 of line 1); save it as"),
        ("folder.jsonl", "folder.jsonl is a folder; name a file in it"),
        ("pretty.json", "pretty.json line 1 is not JSON: Expecting value at column 2; write one object a line"),
        ("good.jsonl?max_tokens=0", "max_tokens is 0, which leaves no room for an answer; give at least 1"),
        ("good.jsonl?max_tokens=-3", "max_tokens is -3"),
        ("good.jsonl?reward=leaves.py:f", "leaves.py leaves the program when it is imported (sys.exit); put what it"),
        ("good.jsonl?reward=mine.py:part", "the part 'deep' of the reward mine.py:part answered a number of 1329 bits"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    task: str, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("latin.jsonl").write_bytes('{"prompt": "café?", "answer": "1"}\n'.encode("latin-1"))
    Path("folder.jsonl").mkdir()
    Path("pretty.json").write_text(json.dumps([{"prompt": "1+1=", "answer": "2"}], indent=1))
    Path("leaves.py").write_text("import sys\nsys.exit(0)\n")
    assert said in told(["--task", task], "rollout", capsys)


def test_nothing_to_sample_is_no_rollout(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--decoded 0 makes no sense" in told(["--decoded", "0"], "rollout", capsys)


@pytest.mark.parametrize("verb", ["train", "rollout"])
def test_an_answer_column_that_is_empty(verb: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(data("gap"), verb, capsys)
    assert "gap.jsonl line 9: field 'answer' is missing or empty; leave the row out, or name another column" in said
    assert "leave --answer out" in said


@pytest.mark.parametrize("verb", ["train", "rollout"])
def test_a_template_without_a_generation_prompt(verb: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nano = rolltree.load("nano")
    assert nano.path is not None
    shutil.copytree(nano.path, "mute")
    tokenizer = nano.codec.tokenizer
    before = tokenizer.chat_template
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}"
    try:
        tokenizer.save_pretrained("mute")
    finally:
        tokenizer.chat_template = before
    said = told([*data(), "--policy", "mute"], verb, capsys)
    assert "the chat template of mute has no generation prompt" in said
    assert said.endswith("mend the template, or use --chat off")


@pytest.mark.parametrize("verb", ["train", "rollout"])
def test_a_model_that_does_not_fit_is_not_loaded(verb: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its config is that of 70 billion parameters; weights that fit it are nowhere."""
    path = rolltree.load("nano").path
    assert path is not None
    shutil.copytree(path, "big")
    config = json.loads(Path("big/config.json").read_text())
    config |= {"hidden_size": 8192, "num_hidden_layers": 80, "intermediate_size": 28672, "num_attention_heads": 64,
               "num_key_value_heads": 8, "head_dim": 128}  # fmt: skip
    Path("big/config.json").write_text(json.dumps(config))
    said = told(["--policy", "big"], verb, capsys)
    assert "big needs about" in said
    assert "GB are free; " in said
    assert "choose a smaller model" in said


def test_a_file_of_another_kind_is_told_what_is_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("sums.csv").write_text("question,answer\n1+1=,2\n")
    said = told(["--task", "sums.csv"], "rollout", capsys)
    assert "sums.csv is neither a task nor data that is read here; give a .jsonl, .json or .parquet file" in said
