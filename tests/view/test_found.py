"""Which runs are found below a folder, what they are called, and whether they train, are done or broke off."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path

import pytest

from rolltree.analysis import source as sources
from rolltree.analysis.source import FoundSources, open_sources
from rolltree.errors import RolltreeError
from rolltree.metrics.log import MetricsLog
from rolltree.training.lock import FolderLock
from rolltree.view.findings import badge
from rolltree.view.first_prompt import first_prompt
from rolltree.view.runs import Line, curve, latest, lines_of, smoothed, summary
from rolltree.view.state import state_of
from tests.view.forests import a_run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run, a comparison's cached run, a saved forest, a model, and a link to a run outside."""
    home = tmp_path / "runs"
    a_run(home / "first")
    cached = home / "cmp" / "cache" / "grpo-words-s0-12ab"
    a_run(cached / "run")
    (cached / "spec.json").write_text("{}")
    (a_run(tmp_path / "kept") / "forests" / "step=1").rename(home / "forest")
    (home / "model").mkdir()
    (home / "model" / "config.json").write_text("{}")
    a_run(tmp_path / "outside")
    (home / "link").symlink_to(tmp_path / "outside")
    return home


def test_runs_are_found_at_any_depth_and_named_by_where_they_are(home: Path):
    assert [(s.name, s.kind) for s in open_sources([home])] == [
        ("cmp/cache/grpo-words-s0-12ab", "run"), ("first", "run"), ("forest", "forests"),
    ]  # fmt: skip
    assert [s.name for s in open_sources([home, home / "first"])] == [
        "runs/cmp/cache/grpo-words-s0-12ab", "runs/first", "runs/forest", "first",
    ]  # fmt: skip
    (alone,) = open_sources([home / "model"])
    assert alone.name == "model", "a folder without runs is a run that is about to begin"


def test_new_runs_appear_and_old_ones_stay_where_a_named_folder_goes(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "FRESH", -1.0)
    found = FoundSources([home])
    a_run(home / "later" / "second")
    assert "later/second" in [s.name for s in found()]
    home.rename(home.with_name("moved"))
    assert "later/second" in [s.name for s in found()]


def test_a_run_is_running_done_or_crashed(tmp_path: Path):
    folder = a_run(tmp_path / "one")
    (one,) = open_sources([folder])
    assert state_of(one) == "crashed", "no program trains here and the run has not come to its end"
    lock = FolderLock(folder)
    assert state_of(one) == "running"
    lock.release()
    (folder / "metrics.parquet").write_bytes(b"")
    assert state_of(one) == "done"
    for later in (-1e6, 1e6):  # a clock that was set, between the two files
        os.utime(folder / "metrics.jsonl", (time.time() + later,) * 2)
        assert state_of(one) == "done"
    MetricsLog(folder / "metrics.jsonl", after=2)
    assert state_of(one) == "crashed", "resumed behind its end, and broken off"
    (folder / "in-use.json").write_text(json.dumps({"pid": os.getpid(), "host": platform.node()}))
    assert state_of(one) == "crashed", "its number is another process's now"
    lock = FolderLock(folder)
    (folder / "in-use.json").write_text(json.dumps({"pid": 1 << 30, "host": platform.node()}))
    assert state_of(one) == "running", "its number is none that this machine sees, as in a container"
    lock.release()
    (folder / "in-use.json").write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert state_of(one) == "running", "another machine holds it and writes"
    for long_ago_or_ahead in (1, 1 << 32):
        for name in ("in-use.json", "metrics.jsonl"):
            os.utime(folder / name, (long_ago_or_ahead,) * 2)
        assert state_of(one) == "crashed"
    (tmp_path / "empty").mkdir()
    assert state_of(open_sources([tmp_path / "empty"])[0]) == "empty"


def test_settings_and_intervals_stand_in_the_summary(tmp_path: Path):
    (one,) = open_sources([a_run(tmp_path / "one")])
    facts = summary(one).facts
    assert facts["seed"] == "7"
    assert facts["knobs"] == "group=8 clip=0.2"
    assert facts["step"] == "2 of 9"
    assert facts["eval/pass@1"] == "0.2 (0.10–0.40)"
    assert "policy/entropy" not in facts
    assert summary(one, ["policy/entropy"]).facts["policy/entropy"] == "0.5"
    lines = lines_of(one)
    assert latest(lines, "budget/decoded_total") == "200"
    drawn = curve("one", lines, "eval/pass@1", "step")
    assert drawn.low == (0.05, 0.1)
    assert drawn.high == (0.2, 0.4)
    assert curve("one", lines, "reward/mean", "step").low == ()


def test_smoothing_is_the_mean_of_what_stands_around():
    line = Line("a", (1.0, 2.0, 3.0, 4.0, 5.0), (0.0, 3.0, 3.0, 9.0, 1.0))
    assert smoothed(line, 3).y == (0.0, 2.0, 5.0, pytest.approx(13 / 3), 1.0)
    assert smoothed(line, 5).y == (0.0, 2.0, pytest.approx(3.2), pytest.approx(13 / 3), 1.0)
    assert smoothed(line, 1) is line


def test_the_badge_counts_findings_by_name_and_shows_the_gravest(tmp_path: Path):
    (one,) = open_sources([a_run(tmp_path / "one")])
    assert badge(one)[:2] == ("–", "")
    rows = [("a", "warning"), ("b", "critical"), ("b", "critical")]
    (one.path / "findings.jsonl").write_text(
        "".join(json.dumps({"step": 1, "name": n, "severity": s, "message": "m"}) + "\n" for n, s in rows)
    )
    assert badge(one) == ("1 critical, 1 warning", "badge grave", "b, a")
    (one.path / "findings.jsonl").write_text("")
    assert badge(one)[0] == "none"


def test_the_first_prompt_is_read_token_by_token(tmp_path: Path):
    (one,) = open_sources([a_run(tmp_path / "one")])
    assert first_prompt(one) is None
    tokens = [{"id": 1, "text": "<s>", "special": True}, {"id": 2, "text": " a\n", "special": False}]
    (one.path / "prompt.json").write_text(json.dumps({"item": "i", "text": "", "tokens": tokens}))
    found = first_prompt(one)
    assert found is not None
    assert [(t.text, t.special) for t in found.tokens] == [("<s>", True), ("·a⏎\n", False)]
    (one.path / "prompt.json").write_text("[]")
    with pytest.raises(RolltreeError, match=r"prompt.json cannot be read"):
        first_prompt(one)
