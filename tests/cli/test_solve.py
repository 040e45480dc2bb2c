"""`rolltree solve`: answers, budgets, what a kill leaves, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.rollout.answers import AnswerFolder

SMALL = ["--task", "countdown", "--items", "6", "--item-tokens", "120"]


def solved(out: Path, *more: str, method: str = "best_of_n") -> list[dict]:
    assert main(["solve", method, *SMALL, "--out", str(out), *more]) == 0
    return [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]


def test_answers_are_lines_in_the_items_order_within_the_budget(tmp_path, capsys):
    lines = solved(tmp_path / "a")
    assert [line["index"] for line in lines] == list(range(6))
    assert all(0 < line["decoded"] <= 120 for line in lines)
    told = json.loads((tmp_path / "a" / "report.json").read_text())
    assert told["decoded"] == sum(line["decoded"] for line in lines)
    assert told["accuracy"] == pytest.approx(sum(line["score"] for line in lines) / 6)
    assert told["any_right"] >= told["accuracy"]
    assert "accuracy" in capsys.readouterr().out
    from rolltree.tree.store.parquet import load

    grown = [tree for part in (tmp_path / "a" / "forests").iterdir() for tree in load(part)]
    assert {tree.item for tree in grown} == {line["id"] for line in lines}
    assert {tree.notes.get("answer") for tree in grown} == {line["answer"] for line in lines}


def test_a_run_that_was_killed_goes_on_to_the_very_same_answers(tmp_path, monkeypatch, capsys):
    whole = solved(tmp_path / "whole", method="mcts")
    add = AnswerFolder.add

    def killed(self, answer, forest):
        if len(self.answers) == 3:
            raise OSError(28, "No space left on device", "answers.jsonl")
        add(self, answer, forest)

    monkeypatch.setattr(AnswerFolder, "add", killed)
    out = tmp_path / "killed"
    assert main(["solve", "mcts", *SMALL, "--out", str(out), "--at-once", "2"]) == 2
    assert "answers.jsonl: No space left on device" in capsys.readouterr().err
    monkeypatch.undo()
    path = out / "answers.jsonl"
    left = path.read_text()
    assert left.count("\n") == 3
    path.write_text(left[:-20])  # the last line was being written
    capsys.readouterr()
    again = solved(out, "--at-once", "5", method="mcts")
    assert "2 of 6 items are answered already" in capsys.readouterr().err

    def told(lines):  # what a cache had computed already depends on what else was asked
        return [{k: v for k, v in line.items() if k != "prefilled"} for line in lines]

    assert told(again) == told(whole)


def test_a_folder_of_other_answers_is_refused_by_what_differs(tmp_path, capsys):
    solved(tmp_path / "a")
    capsys.readouterr()
    assert main(["solve", "best_of_n", *SMALL, "--out", str(tmp_path / "a"), "--seed", "3"]) == 2
    assert "seed=0, and now seed=3 is asked; give another --out" in capsys.readouterr().err
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("mine")
    assert main(["solve", "best_of_n", *SMALL, "--out", str(tmp_path / "b")]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.papers("mars2", "mcgs")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which method?"),
        (["mctss"], "did you mean 'mcts'"),
        (["majority"], "say solve best_of_n --final majority"),
        (["mcts", "--item-tokens", "0"], "--item-tokens 0 buys no answer"),
        (["mcts", "--items", "0"], "--items 0 makes no sense"),
        (["mcts", "--temperature", "-1"], "--temperature -1"),
        (["mcts", "--ways", "1000000"], "fit no memory"),
        (["mars2", "--task", "grid"], "has an environment"),
        (["mcgs", "--improve", "{answr}"], "known: prompt, answer"),
        (["mcts", "--backup", "max"], "invalid choice 'max'"),
    ],
)
def test_bad_input_is_one_sentence(words, said, capsys):
    with pytest.raises(SystemExit) if "invalid" in said else _nothing():
        assert main(["solve", *words]) == 2
    assert said in capsys.readouterr().err


def test_help_says_what_the_budget_is_and_shows_the_methods_knobs(capsys):
    with pytest.raises(SystemExit):
        main(["solve", "tot", "--help"])
    said = capsys.readouterr().out
    assert "--item-tokens is what an item may cost" in said
    assert "Knobs of tot" in said
    assert "--threshold" in said


def test_any_recipe_is_a_method(tmp_path):
    lines = solved(tmp_path / "g", "--group", "4", method="grpo")
    assert {line["how"] for line in lines} <= {"majority", "method"}
    assert any(line["how"] == "majority" for line in lines)


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


@pytest.mark.papers("evogit")
def test_a_role_speaks_with_the_model_that_is_named_and_one_that_is_never_asked_is_said(tmp_path, capsys, monkeypatch):
    from rolltree.engine import choose

    made: list[str] = []
    own = choose.local_engine

    def counted(model, **more):
        made.append(str(model))
        return own(model, **more)

    monkeypatch.setattr(choose, "local_engine", counted)
    few = ["--items", "2", "--task", "countdown", "--population", "2", "--generations", "1"]
    words = [*few, "--role", "judge=nano", "--role", "critic=nano", "--out", str(tmp_path / "a")]
    assert main(["solve", "evogit", *words]) == 0
    assert made.count("nano") >= 2
    told = capsys.readouterr()
    assert "never asked critic: that --role changed nothing" in told.err
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["roles"] == {"judge": "nano", "critic": "nano"}
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    assert report["tokens_by_role"]["judge"] > 0


@pytest.mark.papers("rtv")
@pytest.mark.parametrize("given", ["judge", "=nano", "judge="])
def test_a_role_without_a_model_is_refused(given, capsys):
    assert main(["solve", "rtv", "--role", given]) == 2
    assert "--role judge=MODEL" in capsys.readouterr().err
    assert main(["solve", "rtv", "--role", "judge=a", "--role", "judge=b"]) == 2
    assert "two models" in capsys.readouterr().err


def test_what_nobody_judges_is_answered_by_a_vote_and_not_trained_on(tmp_path, capsys):
    data = tmp_path / "q.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{i}+{j}="}) + "\n" for i in range(2, 6) for j in range(3)))
    asked = ["--task", str(data), "--reward", "none"]
    assert main(["solve", "best_of_n", *asked, "--items-from", "train", "--items", "4", "--n", "5"]) == 0
    told = capsys.readouterr()
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert len(lines) == 4
    for line in lines:
        assert line["score"] is line["any_right"] is None
        assert line["how"] == "majority"
        assert line["text"].rstrip().endswith(line["answer"])
    assert "accuracy" not in told.err
    assert main(["train", "grpo", *asked, "--out", str(tmp_path / "run")]) == 2
    assert "has items without an answer" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()
    assert main(["solve", "best_of_n", *asked, "--reward", "exact"]) == 2
    assert "stands alone" in capsys.readouterr().err
