"""`rolltree doctor` at the command line: exit codes, JSON, thresholds, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolltree.analysis.source import open_sources
from rolltree.cli import main
from rolltree.doctor import detectors
from rolltree.tree.store import jsonl
from rolltree.view.findings import findings as shown
from tests.doctor.planted import group, log, mixed


@pytest.fixture
def sick(tmp_path: Path) -> str:
    return str(jsonl.write([group("a", [0, 0, 0]), group("b", [0, 0])], tmp_path / "sick.jsonl"))


def test_exit_codes_say_whether_something_stands(sick: str, tmp_path: Path) -> None:
    healthy = str(jsonl.write(mixed(), tmp_path / "healthy.jsonl"))
    assert main(["doctor", healthy]) == 0
    assert main(["doctor", sick]) == 1
    assert main(["doctor", sick, "--only", "zero_variance", "--set", "zero_variance.most=1"]) == 0
    settings = ["--only", "zero_variance", "--set", "zero_variance.worse=1", "--fail-on", "critical"]
    assert main(["doctor", sick, *settings]) == 0


def test_a_run_folder_is_read_and_notes_do_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = log({"reward/zero_variance_trained": lambda t: 0.9 if 0.3 < t < 0.6 else 0.2})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["doctor", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 finding (1 of them over)" in said
    assert "not checked" in said
    assert main(["doctor", str(tmp_path), "--fail-on", "note"]) == 1


def test_json_and_file_hold_the_same_findings(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", sick, "--json", "--out", str(tmp_path / "f.jsonl")]) == 1
    report = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()]
    assert report["findings"] == lines
    assert {"step": 0, "tree": "a", "node": 0} in lines[0]["nodes"]
    assert set(report["not_checked"]) | set(report["healthy"]) | {f["name"] for f in lines} == set(detectors())


def test_the_list_names_every_detector(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--list", "--json"]) == 0
    assert [d["name"] for d in json.loads(capsys.readouterr().out)] == list(detectors())
    assert main(["doctor", "--list"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("doctor", "which run?"),
        ("doctor nothing-here", "nothing-here"),
        ("doctor SICK --set duplicate.most=1", "did you mean 'duplicates'"),
        ("doctor SICK --set duplicates.most=much", "is no threshold"),
        ("doctor SICK --only zero", "zero_variance"),
    ],
)
def test_bad_input_is_one_line(words: str, said: str, sick: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.replace("SICK", sick).split()) == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert told.count("\n") == 0


def test_what_holds_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert main(["doctor", str(tmp_path / "empty.jsonl")]) == 2
    assert "empty.jsonl holds no rollouts" in capsys.readouterr().err
    (tmp_path / "metrics.jsonl").touch()
    assert main(["doctor", str(tmp_path)]) == 2
    assert "has finished no step" in capsys.readouterr().err


def test_a_runs_pages_show_what_the_console_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = log({"reward/zero_variance_trained": 0.9, "rollout/truncated": lambda t: 0.6 if 0.3 < t < 0.6 else 0.01})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    gone = {"step": 3, "name": "duplicates", "severity": "warning", "message": "were", "numbers": {}, "nodes": []}
    (tmp_path / "findings.jsonl").write_text(json.dumps(gone) + "\n")

    def pages() -> list[tuple[str, str]]:
        return [(f.name, f.severity) for f in shown(open_sources([tmp_path], "")[0]).found]

    told = [("zero_variance", "critical"), ("truncated_answers", "note")]
    for _ in range(2):
        assert main(["doctor", str(tmp_path), "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert [(f["name"], f["severity"]) for f in report["findings"]] == told
        # What training had seen and is over stays a note of the page.
        assert sorted(pages()) == sorted([*told, ("duplicates", "note")])
    # Other thresholds are asked for once, and stand nowhere.
    before = (tmp_path / "findings.jsonl").read_text()
    assert main(["doctor", str(tmp_path), "--set", "zero_variance.most=1", "--set", "zero_variance.worse=1"]) == 0
    assert (tmp_path / "findings.jsonl").read_text() == before


def test_fixes_are_those_the_recipe_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = log({"reward/zero_variance_trained": 0.9})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def fixes(name: str, **knobs: object) -> str:
        settings = {"recipe": {"is": "Swapped", "inner": {"is": "Any", **knobs}}, "parts": {"name": name}}
        (tmp_path / "config.json").write_text(json.dumps(settings))
        assert main(["doctor", str(tmp_path), "--json"]) == 1
        return json.loads(capsys.readouterr().out)["findings"][0]["fix"]

    assert "--group, now 8 (" in fixes("grpo", group=8)
    assert "recipe dapo (" in fixes("grpo", group=8)
    assert "group" not in fixes("treepo", leaves=16).replace("groups", "")
    assert "recipe dapo" not in fixes("dapo", group=8)


def test_training_ends_with_what_stands_against_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--task", "countdown", "--steps", "1", "--prompts", "2", "--max-tokens", "3", "--eval-every", "0"]
    assert main(["train", "grpo", *short, "--out", str(tmp_path / "one")]) == 0
    said = capsys.readouterr().out
    assert "What the doctor says" in said
    assert "truncated_answers" in said
    assert "--max-tokens (more room)" in said
    assert main(["train", "grpo", *short, "--out", str(tmp_path / "two"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["findings"]
    assert ("truncated_answers", "critical") in [(row["finding"], row["severity"]) for row in told]
    assert main(["train", "grpo", *short, "--out", str(tmp_path / "three"), "--doctor", "0"]) == 0
    assert "What the doctor says" not in capsys.readouterr().out
