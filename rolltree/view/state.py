"""Whether a run trains, has finished or has broken off: read from its folder."""

from __future__ import annotations

import platform
import time
from typing import Any, Literal

from rolltree.analysis.source import RunSource
from rolltree.training.lock import LOCK, held
from rolltree.tree.store.values import read_json

State = Literal["running", "done", "crashed", "empty", ""]
ABOUT: dict[State, str] = {
    "running": "a program is training in this folder now",
    "done": "the run came to its end",
    "crashed": "the program that trained here ended before the run did; log.txt says where, --resume goes on",
    "empty": "nothing has been written here yet",
    "": "",
}
SILENT = 600.0
"""Seconds without news after which a run that another machine holds, where its lock is not seen from here, counts as
broken off."""


def state_of(source: RunSource) -> State:
    """The state of a run folder; "" for forests and nodes, which have none."""
    if source.kind != "run":
        return ""
    folder = source.path
    lock, log, table = folder / LOCK, folder / "metrics.jsonl", folder / "metrics.parquet"
    if lock.is_file():
        return "running" if _held(source) else "crashed"
    if table.is_file():
        return "done"
    if (folder / "answers.jsonl").is_file():  # of `rolltree solve`, which takes up where it was interrupted
        return "done" if (folder / "report.json").is_file() else "crashed"
    if not log.is_file() and not (folder / "config.json").is_file():
        return "empty"
    return "crashed"


def _held(source: RunSource) -> bool:
    """The lock decides. A folder that is shared or copied from another machine may not show it: there, the news do."""
    try:
        file = source.inside(LOCK)
        if held(file.parent):
            return True
        told: dict[str, Any] = read_json(file.read_text(encoding="utf-8"))
        elsewhere = str(told["host"]) != platform.node()
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return elsewhere and min(_age(source.path / name) for name in ("metrics.jsonl", "log.txt", LOCK)) < SILENT


def _age(path: Any) -> float:
    """Seconds since a file was written; before it, where a clock was set back since."""
    try:
        return abs(time.time() - path.stat().st_mtime)
    except OSError:
        return float("inf")
