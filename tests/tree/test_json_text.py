"""JSON nested so deeply that Python cannot read it is a damaged file like any other, for whoever reads one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from rolltree.analysis.source import open_sources
from rolltree.compare.card import card
from rolltree.compare.trace import load_trace
from rolltree.doctor.run import open_run
from rolltree.errors import RolltreeError
from rolltree.metrics.log import read_metrics
from rolltree.policy.lora import base_of
from rolltree.tree.store.arrow import restored, stored
from rolltree.view.findings import findings
from studies.lab.entry import load_entry

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics.jsonl", lambda run: read_metrics(run / "metrics.jsonl")),
        ("adapter_config.json", base_of),
        ("x.json", lambda run: load_trace(run / "x.json")),
        ("x.json", lambda run: load_entry("x", run)),
        ("config.json", card),
        ("config.json", lambda run: open_sources([run])[0].config),
        ("findings.jsonl", lambda run: findings(open_sources([run])[0])),
    ],
)
@pytest.mark.parametrize("text", [DEEP, "[1]"], ids=["deep", "a list"])
def test_it_is_refused_in_a_sentence(tmp_path: Path, name: str, read, text: str) -> None:
    for file in ("config.json", "metrics.jsonl"):
        (tmp_path / file).write_text("{}\n")
    (tmp_path / name).write_text(text + "\n")
    with pytest.raises(RolltreeError) if text == DEEP else suppress(RolltreeError) as told:
        read(tmp_path)
    assert told is None or "\n" not in str(told.value)


def test_settings_that_cannot_be_read_do_not_keep_the_doctor_from_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n')
    for text in (DEEP, "[1]"):
        (tmp_path / "config.json").write_text(text)
        assert len(open_run(tmp_path).lines) == 1


def test_a_text_that_only_looks_stored_is_given_back() -> None:
    mark = stored("\ud800")[0]
    assert restored(mark + DEEP) == mark + DEEP
