"""What a screen hands on: the likeliest rows that acted, as a preregistration that a confirmation can read."""

import json

from studies.board import BoardSettings, main
from studies.power import CANDIDATES, DROP
from studies.preregistration import read
from studies.screen import Screened, candidates
from studies.tables import TableArm
from tests.studies.test_board import Counting


def row(name, p, acted=True):
    return Screened(TableArm(name, "grpo"), p, acted)


def test_what_is_unlikely_or_idle_is_dropped_and_a_family_is_not_overfilled():
    rows = [row("b", 0.1), row("a", 0.01), row("c", DROP + 0.01), row("idle", 0.001, acted=False)]
    assert [arm.label for arm in candidates(rows)] == ["a", "b"]
    many = [row(str(i), 0.1 - i / 1000) for i in range(CANDIDATES + 3)]
    assert [arm.label for arm in candidates(many)] == [str(i) for i in range(CANDIDATES + 2, 2, -1)]


def test_a_table_proposes_what_a_confirmation_reads(tmp_path):
    asked = BoardSettings(
        "stability", seeds=5, lr=1e-4, rows=("tis", "icepop"), regimes=("stale2",), cache=tmp_path / "cache",
        out=tmp_path / "out", kept=tmp_path / "kept",
    )  # fmt: skip
    main(asked, Counting({"grpo": 0.2, "tis": 0.3, "icepop": 0.1}, noise=0.002))
    (path,) = (tmp_path / "out/proposed").iterdir()
    made = read(path)
    assert (made.regime, made.baseline.label, [c.label for c in made.claims]) == ("stale2", "ppo-clip", ["tis"])
    assert json.loads(path.read_text())["why"] == "handed on by the table stability (5 seeds of ppo-clip)"
    assert "- stale2, over ppo-clip: tis" in (tmp_path / "out/stability.md").read_text()
    main(asked, Counting({"grpo": 0.2, "tis": 0.3, "icepop": 0.1}, noise=0.002))
    assert path.is_file()
