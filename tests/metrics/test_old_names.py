"""Runs, findings and evidence of 0.1 open under present names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolltree.compare.budget import page
from rolltree.compare.trace import load_trace
from rolltree.doctor import examine
from rolltree.doctor.examination import read_findings
from rolltree.metrics import old_names
from rolltree.metrics.log import read_metrics
from rolltree.metrics.registry import find
from studies.lab.entry import load_entries

STORED = Path(__file__).parent / "run-0.1.jsonl"
"""Lines that 0.1 wrote: treepo with peers' and schedules' numbers put in, and evaluations."""


def test_every_number_of_a_stored_run_has_a_present_name_or_is_known_to_be_dropped() -> None:
    raw = [json.loads(text) for text in STORED.read_text().splitlines()]
    for old, new in zip(raw, read_metrics(STORED), strict=True):
        assert list(new.values()) == list(old.values()), "no two old names may become one"
        for name in new.keys() - {"kind", "step"} - old_names.DROPPED:
            found = find(name)
            if found is None and name.partition(".")[2] in old_names.DROPPED:
                continue
            assert found is not None, name
            assert not found.own, name


@pytest.mark.parametrize("name", sorted({*old_names.TRAIN.values(), *old_names.COMPARED.values()}))
def test_an_old_name_becomes_one_that_is_registered(name: str) -> None:
    assert find(name) is not None
    assert old_names.train_name(name) == name, "present names stay"


def test_numbers_of_another_policy_stand_under_its_actor() -> None:
    assert old_names.train_name("solver.weight.ess") == "solver/policy/ess"
    assert old_names.eval_name("solver.pass@1_low") == "solver/eval/pass@1_low"
    assert old_names.train_name("my own number") == "my own number"


def test_an_old_run_is_examined_and_its_budget_is_said(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(STORED.read_text())
    report = examine(tmp_path)
    assert {"zero_variance", "truncated_answers", "crashes", "stale_rollouts"} <= {
        *report.healthy,
        *(f.name for f in report.findings),
    }
    rows = {row[0]: row[1] for grid in page(tmp_path).grids for row in grid.rows}
    assert rows["groups ordered"] == "12"


def test_old_findings_and_traces(tmp_path: Path) -> None:
    line = {"step": 3, "name": "engine_gap", "severity": "critical", "message": "m", "numbers": {"gap_mean": 0.2},
            "nodes": [], "lever": "correction tis", "until": None, "status": "open"}  # fmt: skip
    (tmp_path / "findings.jsonl").write_text(json.dumps(line) + "\n")
    (found,) = read_findings(tmp_path / "findings.jsonl")
    assert (found.name, found.fix, found.numbers) == ("mismatch", "correction tis", {"policy/mismatch": 0.2})
    rows = [{"decoded": 1.0, "trained": 1.0, "seconds": 1.0, "pass@1": 0.25, "reward": 0.5}]
    (tmp_path / "trace.json").write_text(json.dumps({"label": "a", "seed": 0, "rows": rows, "items": {}}))
    trace = load_trace(tmp_path / "trace.json")
    assert trace.metrics() == ["eval/pass@1", "reward/mean"]
    assert trace.curve("pass@1")[1].tolist() == trace.curve("eval/pass@1")[1].tolist() == [0.25]


def test_stored_evidence_has_registered_names() -> None:
    entries = load_entries(Path(__file__).parents[2] / "evidence")
    assert entries
    trained = [entry for entry in entries if not entry.question.get("check")]  # a check counts in words of its own
    names = {name for entry in trained for result in entry.results for name in result.also} - {"seconds"}
    assert len(names) > 10
    assert [name for name in names if find(name) is None] == []


def test_what_a_schedule_said_goes_before_what_the_batch_could_tell() -> None:
    line = {"kind": "train", "step": 1, "schedule.partials": 3.0, "partial.waiting": 0.0}
    assert old_names.renamed(line) == {"kind": "train", "step": 1, "rollout/partial": 3.0}
