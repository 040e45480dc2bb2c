"""The doctor during training: on real runs, healthy and sick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rolltree
from rolltree.doctor import Monitor, examine, open_run
from rolltree.doctor.examination import read_findings
from rolltree.errors import RolltreeError
from rolltree.task.protocol import Item, Verdict
from rolltree.training.loop import RunEvent
from rolltree.tree.store.parquet import load
from tests.doctor.planted import PLANTED, log
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

QUIET = {**KNOBS, "eval_every": 0, "checkpoint_every": 0, "forests_every": 1}
MODEST = {"truncated_answers": {"most": 1.0}}
"""Every answer of the toy task reaches its limit of four tokens."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Broken(Early):
    """The verifier breaks on some answers."""

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        if text[:1] < "D":
            raise ValueError("boom")
        return await super().verify(item, state, text)


def play(monitor: Monitor, lines: list[dict[str, Any]]) -> list[str]:
    """What a monitor answers to a run that writes these lines."""
    monitor.folder.mkdir(exist_ok=True)
    said = [monitor(RunEvent("start", 0))]
    for line in lines:
        kind = "trained" if line["kind"] == "train" else "evaluated"
        said.append(monitor(RunEvent(kind, line["step"], {k: v for k, v in line.items() if k not in ("kind", "step")})))
    return [text for text in said if text]


def test_a_finding_is_told_once_when_it_comes_and_once_when_it_goes(tmp_path: Path) -> None:
    lines = log({"reward/zero_variance_trained": lambda t: 0.7 if 0.3 < t < 0.6 else 0.2})
    said = play(Monitor(tmp_path / "run", every=5), lines)
    assert len(said) == 2
    assert said[0].startswith("warning: zero_variance: ")
    assert "recipe dapo" in said[0]
    assert said[1] == "gone: zero_variance"
    told = [json.loads(line) for line in (tmp_path / "run" / "findings.jsonl").read_text().splitlines()]
    assert [t["status"] for t in told] == ["open", "gone"]
    assert told[0]["step"] < told[1]["step"]
    assert {"step", "name", "severity", "message", "numbers", "nodes", "fix"} <= told[0].keys()


def test_a_finding_that_gets_graver_is_told_again(tmp_path: Path) -> None:
    said = play(Monitor(tmp_path / "run", every=5), log({"rollout/truncated": lambda t: t}))
    assert [text.split(":")[0] for text in said] == ["warning", "critical"]


def test_healthy_logs_stay_silent(tmp_path: Path) -> None:
    assert play(Monitor(tmp_path / "run", every=3), log()) == []
    assert (tmp_path / "run" / "findings.jsonl").read_text() == ""


@pytest.mark.parametrize("stop", [23, 40])
def test_a_resumed_run_says_what_an_uninterrupted_one_says(stop: int, tmp_path: Path) -> None:
    lines = log({**PLANTED["duplicates"], "reward/zero_variance_trained": lambda t: 0.9 if 0.3 < t < 0.6 else 0.2})
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    play(Monitor(whole, every=5), lines)
    play(Monitor(parted, every=5), [x for x in lines if x["step"] <= stop + 7])
    (parted / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines if x["step"] <= stop))
    again = Monitor(parted, every=5)
    again(RunEvent("start", stop))
    for line in (x for x in lines if x["step"] > stop):
        again(RunEvent("trained" if line["kind"] == "train" else "evaluated", line["step"], line))
    assert (parted / "findings.jsonl").read_text() == (whole / "findings.jsonl").read_text()


def test_a_sick_run_is_told_while_it_trains(tmp_path: Path) -> None:
    out = tmp_path / "run"
    monitor = Monitor(out, every=2, thresholds=MODEST)
    rolltree.train("grpo", tiny_policy(), Broken(), out=out, listen=monitor, **{**QUIET, "steps": 4})
    told = {f.name: f for f in read_findings(out / "findings.jsonl")}
    assert set(told) == {"crashes", "retries"}, "a broken verifier is asked twice"
    crash = told["crashes"]
    assert crash.numbers["rollout/failed/verifier"] == pytest.approx(crash.numbers["rollout/failed_share"])
    assert "critical: crashes" in (out / "log.txt").read_text()
    report = examine(out, MODEST)
    (finding,) = (f for f in report.findings if f.name == "crashes")
    for place in finding.nodes:
        assert load(out / "forests" / f"step={place.step}")[place.tree][place.node].status == "failed"


def test_watching_changes_no_number_of_a_run(tmp_path: Path) -> None:
    knobs = {**QUIET, "forests_every": 0, "steps": 3}
    plain = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "a", **knobs)
    watched = rolltree.train(
        "grpo", tiny_policy(), Early(), out=tmp_path / "b", listen=Monitor(tmp_path / "b", every=1), **knobs
    )
    assert timeless(plain.metrics) == timeless(watched.metrics)


def test_a_real_run_logs_what_its_forests_say_and_is_healthy(tmp_path: Path) -> None:
    """The embedded policy on countdown: nothing is wrong, and log and saved rollouts agree on every number."""
    out = tmp_path / "run"
    run = rolltree.train(
        "grpo", "nano", "countdown", out=out, steps=4, prompts=8, eval_every=0, forests_every=1, checkpoint_every=0,
        quiet=True, listen=Monitor(out, every=2),
    )  # fmt: skip
    assert (out / "findings.jsonl").read_text() == ""
    report = examine(out)
    assert report.findings == ()
    assert {"zero_variance", "duplicates", "near_duplicates", "crashes", "mismatch"} <= set(report.healthy)
    bare = examine(out / "forests")
    assert bare.findings == ()
    forests = open_run(out / "forests")
    for line in run.metrics:
        for name in [k for k in line if k.startswith(("reward/", "rollout/length_", "policy/prefix_"))]:
            of_forests = forests.series(name)
            assert of_forests.values[of_forests.steps == line["step"]] == pytest.approx(line[name]), name
        assert line["policy/ess"] == pytest.approx(1, abs=1e-3), "sampled from the policy's own distribution"


def test_a_monitor_that_never_looks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RolltreeError, match="every=0"):
        Monitor(tmp_path, every=0)


def test_a_log_that_holds_no_findings_is_refused_before_a_run_goes_on(tmp_path: Path) -> None:
    line = {"step": 1, "name": "crashes", "severity": "grave", "message": "", "numbers": {}}
    (tmp_path / "findings.jsonl").write_text(f"{json.dumps(line)}\n")
    with pytest.raises(RolltreeError, match=r"severity 'grave' is none of note, warning, critical.*delete it"):
        read_findings(tmp_path / "findings.jsonl")
