"""Confirmations run only what was committed before, end early where they can, and use no seed twice."""

import json
import subprocess

import pytest

from rolltree.compare.regimes import Calibrated
from rolltree.compare.trace import LabError
from studies import confirm
from studies.confirm import ConfirmSettings, main
from studies.preregistration import FOLDER, committed, read
from tests.lab.simulated import Simulated

ASKED = {
    "regime": "fresh", "baseline": {"label": "grpo", "recipe": "grpo"},
    "claims": [{"label": "rloo", "recipe": "rloo"}, {"label": "gspo", "recipe": "gspo"}],
    "least": 0.02, "first_seed": 2000, "looks": [4, 6, 8],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A repository with a preregistration in it."""

    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True,
                       capture_output=True)  # fmt: skip

    (tmp_path / "mine.json").write_text(json.dumps(ASKED))
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    monkeypatch.setattr(confirm, "calibrated", lambda name: Calibrated(1e-4, 4))
    return tmp_path


def test_a_clear_effect_ends_early_and_none_is_not_found(folder, capsys):
    runner = Simulated({"grpo": 0.1, "rloo": 0.3, "gspo": 0.1}, noise=0.01)
    told = main(ConfirmSettings("mine", folder=folder, cache=folder / "cache", kept=folder / "kept"), runner)
    assert told["rloo"] == "holds"
    assert told["gspo"] in ("no difference found", "no effect above x")
    seeds = {label: [s for name, s in runner.made if name == label] for label in ("grpo", "rloo", "gspo")}
    assert len(seeds["rloo"]) == 4
    assert len(seeds["gspo"]) == len(seeds["grpo"]) == 8
    assert min(seeds["grpo"]) == 2000
    stored = json.loads((folder / "mine.result.json").read_text())
    assert stored["preregistered"] == committed(folder / "mine.json")
    assert [row["held_at"] for row in stored["claims"]] == [4, None]
    assert [row["collapsed"] for row in (*stored["claims"], stored["baseline"])] == [0, 0, 0]
    assert stored["claims"][0]["q"] < 0.01 < stored["claims"][1]["q"]
    assert (
        main(ConfirmSettings("mine", folder=folder, cache=folder / "cache", kept=folder / "kept", plan=True), runner)
        is None
    )
    assert "at most 24 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gain", "why"), [(-0.19, "the baseline collapsed"), (0.85, "the baseline stands at its ceiling")]
)
def test_a_baseline_that_cannot_be_beaten_in_a_way_that_counts_is_no_verdict(folder, gain, why):
    runner = Simulated({"grpo": gain, "rloo": gain + 0.15, "gspo": gain}, noise=0.001)
    told = main(ConfirmSettings("mine", folder=folder, cache=folder / "cache", kept=folder / "kept"), runner)
    assert set(told.values()) == {f"void: {why}"}


def test_what_is_not_committed_as_it_stands_is_refused(folder):
    (folder / "mine.json").write_text(json.dumps({**ASKED, "least": 0.01}))
    with pytest.raises(LabError, match="not committed as it stands"):
        main(ConfirmSettings("mine", folder=folder, cache=folder / "cache", kept=folder / "kept"), Simulated({}))
    (folder / "new.json").write_text(json.dumps({**ASKED, "first_seed": 3000}))
    with pytest.raises(LabError, match="not committed"):
        committed(folder / "new.json")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"first_seed": 5}, "seen by screens"),
        ({"first_seed": 2007}, "those of mine.json too; give 2008 or more"),
        ({"regime": "cold"}, "no regime 'cold'"),
        ({"claims": []}, "0 claims"),
        ({"least": None}, "cannot read"),
    ],
)
def test_promises_that_the_procedure_cannot_keep_are_refused(folder, changes, says):
    (folder / "other.json").write_text(json.dumps({**ASKED, **changes}))
    with pytest.raises(LabError, match=says):
        read(folder / "other.json")


def test_the_committed_preregistrations_can_be_read():
    for path in FOLDER.glob("*.json"):
        if not path.name.endswith(".result.json"):
            assert read(path).claims
