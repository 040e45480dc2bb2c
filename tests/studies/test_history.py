"""What entries said before is read from a clone's history."""

import subprocess
from dataclasses import replace

import pytest

from rolltree.compare.trace import LabError
from studies.history import HistorySettings, main
from studies.lab.entry import load_entry, save_entry
from studies.lab.evidence import measure
from tests.lab.simulated import Simulated
from tests.lab.test_evidence import quiet, training


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


def test_each_answer_that_was_committed_is_told_once(tmp_path):
    folder = tmp_path / "evidence"
    folder.mkdir()
    git(tmp_path, "init", "-q")
    first, second = (
        measure(training(task=task), Simulated({"grpo": 0.1, "rloo": gain}), tmp_path / f"cache-{task}", quiet())
        for task, gain in (("countdown", 0.25), ("chained", 0.05))
    )
    for entry in (first, replace(first, seconds=7.0), second):
        save_entry(entry, folder)
        git(tmp_path, "add", "evidence")
        git(tmp_path, "commit", "-qm", "x")
    for _ in range(2):
        assert main(HistorySettings(folder)) == 1, "also where it was filled in before"
    (was,) = load_entry("rloo", folder).earlier
    assert (was.question["task"], was.effect, was.outcome) == ("countdown", first.effect, "holds")


def test_without_a_history_it_says_so(tmp_path):
    save_entry(measure(training(), Simulated({"grpo": 0.1, "rloo": 0.2}), tmp_path / "cache", quiet()), tmp_path)
    with pytest.raises(LabError, match="give a clone with its history"):
        main(HistorySettings(tmp_path))
