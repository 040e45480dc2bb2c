"""Files of numbers that somebody damaged, and lines with texts in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolltree.analysis.source import open_sources
from rolltree.compare.card import card
from rolltree.doctor.run import DoctorError, open_run
from rolltree.metrics.log import MetricsError, MetricsLog, read_metrics
from rolltree.view.runs import lines_of

DAMAGED = {
    "a step beyond all": {"kind": "train", "step": 10**30},
    "a number beyond all": {"kind": "train", "step": 1, "reward/mean": 10**400},
    "a text for a number": {"kind": "train", "step": 1, "reward/mean": "much"},
    "a kind that is none": {"kind": [], "step": 1},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n')
    return tmp_path


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_is_a_sentence_everywhere(run: Path, name: str) -> None:
    with (run / "metrics.jsonl").open("a") as sink:
        sink.write(json.dumps(DAMAGED[name]) + "\n")
    with pytest.raises(MetricsError, match=r"metrics\.jsonl is damaged \(line 2: .*cut off the damaged line"):
        read_metrics(run / "metrics.jsonl")
    with pytest.raises(DoctorError, match="is damaged"):
        open_run(run)
    with pytest.raises(MetricsError):
        MetricsLog(run / "metrics.jsonl", after=0)
    assert (run / "metrics.jsonl").read_text().count("\n") == 2


@pytest.mark.parametrize("line", ['"text"', "[1]", "7", "{}"])
def test_lines_that_measure_nothing_are_left_out(run: Path, line: str) -> None:
    with (run / "metrics.jsonl").open("a") as sink:
        sink.write(line + "\n")
    assert len(open_run(run).lines) == len(read_metrics(run / "metrics.jsonl")) == 1


def test_a_run_with_words_in_its_log_is_shown_and_goes_on(run: Path) -> None:
    log = MetricsLog(run / "metrics.jsonl")
    log.write_words("failed", 2, failed=3, why="ValueError: one\u2028two\x85three\x0cfour")
    log.write("train", 2, {"odd": True, "even": 0.5})
    log.close()
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [1, 2, 2]
    (source,) = open_sources([run])
    assert [line["step"] for line in lines_of(source)] == [1, 2, 2]
    MetricsLog(run / "metrics.jsonl", after=1).close()
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [1]


def test_settings_of_another_shape_are_refused_by_name(run: Path) -> None:
    (run / "forests").mkdir()
    (run / "config.json").write_text('{"parts": [1]}')
    with pytest.raises(Exception, match="holds no settings of a run"):
        card(run)
