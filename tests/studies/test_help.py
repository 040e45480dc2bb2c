"""What the studies' commands say of themselves: words that people read, not types."""

from __future__ import annotations

import contextlib
import io
from importlib import import_module
from typing import Any

import pytest
import tyro

COMMANDS = (
    "board.BoardSettings", "calibrate.CalibrateSettings", "confirm.ConfirmSettings",
    "fixes.FixesSettings", "majority.MajoritySettings", "power.PowerSettings",
    "variants.VariantSettings", "warm.WarmSettings", "exact.report.Args", "nano.learn.LearnSettings",
    "nano.table.TableSettings",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_type_stands_where_a_word_belongs(command: str):
    module, _, name = command.rpartition(".")
    shape: Any = getattr(import_module(f"studies.{module}"), name)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit):
        tyro.cli(shape, args=["--help"])
    assert "None}" not in said.getvalue()
    assert "None|" not in said.getvalue()
