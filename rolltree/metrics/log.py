"""Where the numbers of a run go: a JSON-lines file, a Parquet table at the end, and trackers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.errors import RolltreeError
from rolltree.tree.store.atomic import naming, new_file
from rolltree.tree.store.values import read_json, why_not

MEASURED = ("train", "eval")
"""Kinds of lines that hold nothing but numbers."""
_MOST = 1 << 63


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
        self._path, self._table = path, path.with_suffix(".parquet")
        self._trackers = trackers
        if after is not None:
            if path.exists():
                read_metrics(path)  # what cannot be read at the end is refused now
            forget_after(path, after)
        with naming(self._table):  # what goes on has not come to its end, whatever the clocks on its files say
            self._table.unlink(missing_ok=True)
        self._sink = path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, numbers: Mapping[str, float]) -> dict[str, Any]:
        """One line; numbers that are not finite are written as null."""
        line = {"kind": kind, "step": step} | {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        self._append(line)
        for tracker in self._trackers:
            tracker.log(step, {k: v for k, v in numbers.items() if math.isfinite(v)})
        return line

    def write_words(self, kind: str, step: int, **said: float | str) -> None:
        """One line that is no measurement: trackers do not get it."""
        self._append({"kind": kind, "step": step, **said})

    def close(self, *, ended: bool = True) -> None:
        """Close everything, and write the Parquet table of a run that came to its end.

        Where memory has run out, Arrow may end the process without a word; a run that broke off has no table.
        """
        with naming(self._path):
            self._sink.close()
        for tracker in self._trackers:
            tracker.close()
        if not ended:
            return
        lines = read_metrics(self._path)
        if lines:
            columns = sorted({k for line in lines for k in line}, key=lambda k: (k not in ("kind", "step"), k))
            table = pa.table({c: [line.get(c) for line in lines] for c in columns})
            with naming(self._table):
                pq.write_table(table, self._table)

    def _append(self, line: Mapping[str, Any]) -> None:
        with naming(self._path):
            self._sink.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._sink.flush()


class MetricsError(RolltreeError, ValueError):
    """A file of a run's numbers that is damaged: names it, the line and what is wrong there."""


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """All whole lines of a metrics file; lines of another kind of file are left out, and a line cut short by a kill."""
    found = [_measured(path, number, line) for number, line in enumerate(read_lines(path), 1)]
    return [line for line in found if line]


def read_lines(path: Path | str) -> list[Any]:
    """All whole lines of a file of JSON lines; a last line cut short by a kill is left out."""
    out: list[Any] = []
    # Split at newlines alone: texts in a line may hold other signs that Python takes for an end of line.
    for number, text in enumerate(Path(path).read_bytes().split(b"\n")[:-1], 1):
        try:
            out.append(read_json(text))
        except ValueError as error:
            raise _damaged(path, number, why_not(error)) from None
    return out


def _damaged(path: Path | str, number: int, why: str) -> MetricsError:
    return MetricsError(f"{path} is damaged (line {number}: {why}); restore it or cut off the damaged line")


def _measured(path: Path | str, number: int, found: object) -> dict[str, Any]:
    """A line whose step and numbers are such; empty where it is of another kind of file."""
    line = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not {"kind", "step"} <= line.keys():
        return {}
    kind, step = line["kind"], line["step"]
    if not isinstance(kind, str) or type(step) is not int or abs(step) >= _MOST:
        raise _damaged(path, number, f"its kind is {kind!r:.40} and its step {step!r:.40}")
    for name, value in line.items():
        told = name == "kind" or (isinstance(value, str) and kind not in MEASURED)
        if not told and value is not None and not _is_number(value):
            raise _damaged(path, number, f"{name!r:.40} is {value!r:.40}, which is no number")
    return {name: int(value) if isinstance(value, bool) else value for name, value in line.items()}


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and -math.inf <= float(value) <= math.inf
    except OverflowError:
        return False


def forget_after(path: Path, step: int) -> None:
    """Cut off lines of steps after a checkpoint's: they are about to be written again."""
    if not path.exists():
        return
    kept = [line for line in read_lines(path) if not _is_after(line, step)]
    with new_file(path, overwrite=True) as sink:
        sink.writelines(json.dumps(line) + "\n" for line in kept)


def _is_after(line: Any, step: int) -> bool:
    at: Any = cast("dict[str, Any]", line).get("step") if isinstance(line, dict) else None
    return isinstance(at, int | float) and at > step
