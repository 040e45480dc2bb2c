"""Where the numbers of a run go: a JSON-lines file, a Parquet table at the end, and trackers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.metrics.old_names import renamed


class Tracker(Protocol):
    """Takes numbers of a step."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record them."""
        ...

    def close(self) -> None:
        """Flush and leave."""
        ...


class MetricsLog:
    """Appends lines to `metrics.jsonl`; each is on disk before the call returns."""

    def __init__(self, path: Path, trackers: tuple[Tracker, ...] = (), *, after: int | None = None) -> None:
        self._path = path
        self._trackers = trackers
        if after is not None:
            forget_after(path, after)
        self._sink = path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, numbers: Mapping[str, float]) -> dict[str, Any]:
        """One line; numbers that are not finite are written as null."""
        line = {"kind": kind, "step": step} | {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        self._sink.write(json.dumps(line) + "\n")
        self._sink.flush()
        for tracker in self._trackers:
            tracker.log(step, {k: v for k, v in numbers.items() if math.isfinite(v)})
        return line

    def write_words(self, kind: str, step: int, **said: float | str) -> None:
        """One line that is no measurement: trackers do not get it."""
        self._sink.write(json.dumps({"kind": kind, "step": step, **said}, ensure_ascii=False) + "\n")
        self._sink.flush()

    def close(self) -> None:
        """Close everything and write the Parquet table."""
        self._sink.close()
        for tracker in self._trackers:
            tracker.close()
        lines = read_metrics(self._path)
        if lines:
            columns = sorted({k for line in lines for k in line}, key=lambda k: (k not in ("kind", "step"), k))
            table = pa.table({c: [line.get(c) for line in lines] for c in columns})
            pq.write_table(table, self._path.with_suffix(".parquet"))


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """All whole lines of a metrics file, old ones under present names; a line cut short by a kill is left out."""
    return [renamed(line) for line in read_lines(path)]


def read_lines(path: Path | str) -> list[dict[str, Any]]:
    """All whole lines of a file of JSON objects; a last line cut short by a kill is left out."""
    out: list[dict[str, Any]] = []
    for text in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if text.endswith("\n"):
            out.append(cast(dict[str, Any], json.loads(text)))
    return out


def forget_after(path: Path, step: int) -> None:
    """Cut off lines of steps after a checkpoint's: they are about to be written again."""
    if not path.exists():
        return
    kept = [line for line in read_lines(path) if line["step"] <= step]
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    partial.replace(path)
