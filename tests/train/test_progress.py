"""What a run says reaches its log, whoever says it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rolltree.train.config import TrainConfig
from rolltree.train.progress import Reporter


def test_what_an_engine_warns_of_stands_in_the_runs_log_while_the_run_lasts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = logging.getLogger("rolltree.engine")
    with Reporter(tmp_path / "log.txt", TrainConfig(), quiet=True):
        engine.warning("The local engine ran out of memory with %d requests inside.", 7)
        engine.info("not this")
    engine.warning("after the run")
    text = (tmp_path / "log.txt").read_text()
    assert "ran out of memory with 7 requests inside." in text
    assert "not this" not in text
    assert "after the run" not in text
    assert not logging.getLogger("rolltree").handlers
