"""The runs of the chat model: their commands are ones that exist, their page says what their own numbers say."""

import json
import re
import runpy
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.task.registry import load_task
from studies.chat import learn
from studies.chat.learn import ChatSettings
from studies.chat.page import _PAGE

ROOT = Path(__file__).resolve().parents[3]


def lines(start, end, middle=0.2):
    """A run's metrics: three evaluations, four steps."""

    def evaluation(step, form):
        return {"kind": "eval", "step": step, "eval/part/equation": form, "eval/part/number": form / 2,
                "time/processor": 10.0, "time/evaluate": 20.0}  # fmt: skip

    def step(i):
        return {"kind": "train", "step": i, "time/processor": 5.0, "time/grow": 1.0, "time/learn": 2.0,
                "time/total": 3.0 * i}  # fmt: skip

    return [evaluation(0, start), step(1), step(2), evaluation(2, middle), step(3), step(4), evaluation(4, end)]


def run(folder, told):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))


def test_the_page_says_what_finished_runs_say_and_no_more(tmp_path):
    run(tmp_path / "grpo-LoRA-0", lines(0.1, 0.6))
    run(tmp_path / "grpo-LoRA-1", lines(0.1, 0.3))
    run(tmp_path / "treepo-LoRA-0", lines(0.1, 0.9, middle=0.5)[:-1])
    (tmp_path / "grpo-LoRA-0" / "checkpoints").mkdir()
    learn.main(ChatSettings(seeds=2, steps=4, eval_every=2, runs=tmp_path, out=tmp_path / "docs", publish=True))
    assert (tmp_path / "grpo-LoRA-0" / "checkpoints").is_dir(), "a run that may still be saving is left alone"
    page = (tmp_path / "docs" / "chat-learning.md").read_text()
    assert "| grpo | LoRA | 0, 1 | 10% → 60%, 10% → 30% | +35 (-156 to +226) | 5% → 30%, 5% → 15% | 50, never |" in page
    assert "50, 50 | 1, 1 |" in page
    assert "| treepo |" not in page
    assert "**1 of 2 finished runs**" in page
    assert "2 of the 8 runs of the plan are finished" in page
    assert len(json.loads((tmp_path / "docs" / "chat-learning.json").read_text())) == 2


def test_numbers_beside_the_page_stand_for_runs_that_are_not_here(tmp_path, monkeypatch):
    kept, docs = tmp_path / "kept", tmp_path / "docs"
    for recipe in learn.RECIPES:
        for way in learn.WAYS:
            run(kept / f"{recipe}-{way.replace(' ', '-')}-0", lines(0.1, 0.6))
    learn.main(ChatSettings(seeds=1, steps=4, runs=kept, out=docs, publish=True))
    first = (docs / "chat-learning.json").read_text()
    started = []
    monkeypatch.setattr(learn.subprocess, "run", lambda words, check: started.append(words[1:3]))
    learn.main(ChatSettings(seeds=1, steps=4, runs=tmp_path / "empty", out=docs))
    assert started == [["examples/chat/make_sums.py", learn.DATA]]
    assert (docs / "chat-learning.json").read_text() == first
    learn.main(ChatSettings(seeds=1, steps=4, runs=tmp_path / "empty", out=docs, again=True))
    assert started.count(["-m", "rolltree"]) == 4
    learn.main(ChatSettings(seeds=1, steps=8, runs=tmp_path / "empty", out=docs))
    assert started.count(["-m", "rolltree"]) == 8, "runs of another length are other runs"


def test_every_command_on_the_page_is_one_that_train_takes(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    runpy.run_path("examples/chat/make_sums.py")["main"]("sums.jsonl")
    for way in learn.WAYS:
        for recipe in learn.RECIPES:
            assert main([*learn.command(recipe, way, 0, ChatSettings()), "--policy", "elsewhere"]) == 2
            assert "there is no model 'elsewhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "worth"),
    [("4 + 5 = 9", 1), ("4 + 5 = 9.", 1), (" 4 + 5 = 8\n", 1), ("4+5=9", 0), ("So 4 + 5 = 9", 0), ("9", 0), ("", 0),
     ("4 + 5 = 9\n4 + 5 = 9", 0)],
)  # fmt: skip
def test_the_form_is_one_equation_whatever_it_says(text, worth):
    equation = runpy.run_path(str(ROOT / "examples/chat/rewards.py"))["equation"]
    assert equation([text]) == [worth]
    assert equation([[{"role": "assistant", "content": text}]]) == [worth]


def test_the_data_are_as_many_as_the_page_says_and_hold_out_a_part(tmp_path):
    runpy.run_path(str(ROOT / "examples/chat/make_sums.py"))["main"](str(tmp_path / "sums.jsonl"))
    task = load_task(str(tmp_path / "sums.jsonl"), reward="number")
    said = re.search(r"(\d+) training items and (\d+) held-out", _PAGE)
    assert said
    assert (task.count("train"), task.count("test")) == (int(said[1]), int(said[2]))
    assert int(said[2]) == int(learn.COMMON[learn.COMMON.index("--eval-items") + 1])
