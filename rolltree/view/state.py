"""Whether a run trains, has finished or has broken off: read from its folder, without touching its lock."""

from __future__ import annotations

import os
import platform
import time
from typing import Any, Literal

from rolltree.tree.json_text import read_json
from rolltree.view.source import RunSource

State = Literal["running", "done", "crashed", "empty", ""]
ABOUT: dict[State, str] = {
    "running": "a program is training in this folder now",
    "done": "the run came to its end",
    "crashed": "the program that trained here ended before the run did; log.txt says where, --resume goes on",
    "empty": "nothing has been written here yet",
    "": "",
}
LOCK = "in-use.json"
SILENT = 600.0
"""Seconds without news after which a run that another machine holds counts as broken off."""


def state_of(source: RunSource) -> State:
    """The state of a run folder; "" for forests and nodes, which have none."""
    if source.kind != "run":
        return ""
    folder = source.path
    lock, log, table = folder / LOCK, folder / "metrics.jsonl", folder / "metrics.parquet"
    if lock.is_file():
        return "running" if _held(source) else "crashed"
    if table.is_file():
        # A run that was resumed and broke off again has written lines after its table.
        return "crashed" if _age(table) - _age(log) > 5 else "done"
    if (folder / "answers.jsonl").is_file():  # of `rolltree solve`, which takes up where it was interrupted
        return "done" if (folder / "report.json").is_file() else "crashed"
    if not log.is_file() and not (folder / "config.json").is_file():
        return "empty"
    return "crashed"


def _held(source: RunSource) -> bool:
    try:
        told: dict[str, Any] = read_json(source.inside(LOCK).read_text(encoding="utf-8"))
        host, process = str(told["host"]), int(told["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if host != platform.node():
        return min(_age(source.path / name) for name in ("metrics.jsonl", "log.txt", LOCK)) < SILENT
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's process
    return True


def _age(path: Any) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
