"""What a run says reaches its log, whoever says it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rolltree.train.config import TrainConfig
from rolltree.train.progress import Reporter


def test_what_an_engine_warns_of_stands_in_the_runs_log_while_the_run_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = logging.getLogger("rolltree.engine")
    # Libraries of other tests configure logging for the whole process, and silence loggers that existed before.
    for logger in (engine, logging.getLogger("rolltree")):
        monkeypatch.setattr(logger, "disabled", False)
        monkeypatch.setattr(logger, "propagate", True)
        monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setattr(logging.root.manager, "disable", 0)
    engine.manager._clear_cache()  # type: ignore[attr-defined]
    with Reporter(tmp_path / "log.txt", TrainConfig(), quiet=True):
        engine.warning("The local engine ran out of memory with %d requests inside.", 7)
        engine.info("not this")
    engine.warning("after the run")
    text = (tmp_path / "log.txt").read_text()
    assert "ran out of memory with 7 requests inside." in text
    assert "not this" not in text
    assert "after the run" not in text
    assert not logging.getLogger("rolltree").handlers
