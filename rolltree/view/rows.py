"""Single nodes and one tree's events out of a saved forest: only the row groups that hold them are read.

States and notes stay the JSON they are stored as, so that a run opens without the program that defined its classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from rolltree.tree import Event, Node
from rolltree.tree.shape import offsets
from rolltree.tree.store import columns
from rolltree.tree.store.archive import Archive
from rolltree.tree.store.arrow import ArrowTable
from rolltree.tree.store.parquet import open_file, readable
from rolltree.tree.store.values import read_json


@dataclass(frozen=True, eq=False)
class Record:
    """A node with its state and notes as stored."""

    row: int
    """Its row in the archive."""
    node: Node
    state: str
    notes: dict[str, Any]


def records(archive: Archive, rows: Sequence[int]) -> list[Record]:
    """The nodes at some rows of a single forest, in the order asked for."""
    if not rows:
        return []
    folder = archive.folder
    changed = (folder / "nodes.parquet").stat().st_mtime_ns
    at = _group_starts(folder, "nodes", changed)
    wanted = np.asarray(rows, np.int64)
    groups = np.searchsorted(at, wanted, side="right") - 1
    found: dict[int, Record] = {}
    for g in np.unique(groups).tolist():
        here = wanted[groups == g]
        table = _group(folder, "nodes", g, changed).take(here - at[g])
        told = [(s or "", n) for s, n in zip(table["state"].to_pylist(), table["notes"].to_pylist(), strict=True)]
        for name in columns.ENCODED:
            table = table.set_column(table.column_names.index(name), name, pa.nulls(len(here), pa.string()))
        with readable(folder / "nodes.parquet"):
            nodes = list(columns.read_nodes(table))
        for row, node, (state, notes) in zip(here.tolist(), nodes, told, strict=True):
            found[row] = Record(row, node, state, stored(notes))
    return [found[row] for row in rows]


def events_of(archive: Archive, index: int) -> list[Event]:
    """The events of the tree at a place in the archive's list."""
    folder = archive.folder
    changed = (folder / "events.parquet").stat().st_mtime_ns
    ends = offsets(_heads(folder, changed)["events"].to_numpy())
    lo, hi = int(ends[index]), int(ends[index + 1])
    at = _group_starts(folder, "events", changed)
    out: list[Event] = []
    for g in range(len(at) - 1):
        start, stop = max(lo, int(at[g])), min(hi, int(at[g + 1]))
        if start < stop:
            part = _group(folder, "events", g, changed).slice(start - int(at[g]), stop - start)
            names = ("kind", "node", "why", "numbers", "at")
            for kind, node, why, numbers, when in zip(*(part[n].to_pylist() for n in names), strict=True):
                out.append(Event(kind, node, why or "", stored(numbers), when))
    return out


def head(archive: Archive, index: int) -> dict[str, Any]:
    """What is known of a tree as a whole: task, item, notes (as stored) and counts."""
    folder = archive.folder
    row = _heads(folder, (folder / "events.parquet").stat().st_mtime_ns).slice(index, 1).to_pylist()[0]
    return {**row, "notes": stored(row["notes"])}


def items(archive: Archive) -> list[str]:
    """The item each tree grew from, in the archive's order."""
    folder = archive.folder
    return _heads(folder, (folder / "events.parquet").stat().st_mtime_ns)["item"].to_pylist()


def stored(text: str | None) -> dict[str, Any]:
    """A stored mapping as plain JSON; tags of numbers and tuples are taken off, others stay as they are."""
    if not text:
        return {}
    found: Any = read_json(text, object_hook=_untag)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {"value": found}


def _untag(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        (tag, inner), *_ = value.items()
        if tag == "$float":
            return float(inner)
        if tag in ("$tuple", "$set", "$frozenset"):
            return inner
    return value


@lru_cache(maxsize=6)
def _group(folder: Path, name: str, group: int, changed: int) -> ArrowTable:
    del changed
    with readable(folder / f"{name}.parquet"):
        return open_file(folder, name).read_row_group(group)


@lru_cache(maxsize=8)
def _group_starts(folder: Path, name: str, changed: int) -> np.ndarray:
    del changed
    meta = open_file(folder, name).metadata
    return offsets(np.array([meta.row_group(i).num_rows for i in range(meta.num_row_groups)], np.int64))


@lru_cache(maxsize=8)
def _heads(folder: Path, changed: int) -> ArrowTable:
    del changed
    with readable(folder / "trees.parquet"):
        return open_file(folder, "trees").read()
