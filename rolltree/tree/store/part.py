"""One saved forest of an archive: its columns, and single trees out of it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rolltree.tree.shape import Ints, offsets
from rolltree.tree.store import columns
from rolltree.tree.store.arrow import ArrowColumn, ArrowTable, stored
from rolltree.tree.store.parquet import assemble, check_counts, open_file, readable
from rolltree.tree.tree import Tree


class Part:
    """One saved forest, its files open and its nodes unread."""

    def __init__(self, folder: Path, step: int | None) -> None:
        self.folder, self.step = folder, step
        self.nodes = open_file(folder, "nodes")
        self._events = open_file(folder, "events")
        heads = open_file(folder, "trees")
        self.rows: int = self.nodes.metadata.num_rows
        with readable(folder / "trees.parquet"):
            self._heads = heads.read()
        check_counts(folder, self._heads, {"nodes": self.rows, "events": self._events.metadata.num_rows})
        self.ids: list[str] = self._heads["tree"].to_pylist()  # as stored, so that they can stand in an address
        self.sizes: Ints = self._heads["nodes"].to_numpy()

    @property
    def event_counts(self) -> Ints:
        """Events of each tree."""
        return self._heads["events"].to_numpy()

    def tree_notes(self) -> list[str | None]:
        """The notes of each tree, as stored."""
        return self._heads["notes"].to_pylist()

    def events(self) -> ArrowTable:
        """The events of all trees in order."""
        with readable(self.folder / "events.parquet"):
            return self._events.read()

    @cached_property
    def _starts(self) -> dict[str, Ints]:
        return {"nodes": offsets(self.sizes), "events": offsets(self.event_counts)}

    @cached_property
    def _readers(self) -> dict[str, _Rows]:
        return {"nodes": _Rows(self.nodes), "events": _Rows(self._events)}

    @cached_property
    def _index(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for i, id in enumerate(self.ids):
            out.setdefault(id, []).append(i)
        return out

    def find(self, id: str) -> list[int]:
        """Where trees of that id stand (once, unless the part was written by other hands)."""
        return self._index.get(id, []) or self._index.get(str(stored(id)), [])

    def column(self, name: str) -> ArrowColumn | None:
        """A column of the nodes, or None if this part lacks it."""
        if name not in self.nodes.schema_arrow.names:
            return None
        with readable(self.folder / "nodes.parquet"):
            return self.nodes.read([name])[name]

    def tree(self, index: int) -> Tree:
        """The tree at a place in `ids`, with its events."""
        head = self._heads.slice(index, 1).to_pylist()[0]
        with readable(self.folder / "nodes.parquet"):
            tree = assemble(head, columns.read_nodes(self._slice("nodes", index)))
        with readable(self.folder / "events.parquet"):
            tree.events = list(columns.read_events(self._slice("events", index)))
        return tree

    def _slice(self, name: str, index: int) -> ArrowTable:
        return self._readers[name].between(*(int(r) for r in self._starts[name][index : index + 2]))


class _Rows:
    """Ranges of rows of one file; the row groups read last stay in memory."""

    def __init__(self, file: Any) -> None:
        self._file = file
        groups = file.metadata
        self._starts = offsets(np.array([groups.row_group(i).num_rows for i in range(groups.num_row_groups)], np.int64))
        self._held: dict[int, ArrowTable] = {}

    def between(self, start: int, stop: int) -> ArrowTable:
        first, last = (int(np.searchsorted(self._starts, r, side="right")) - 1 for r in (start, max(start, stop - 1)))
        if stop == start:
            return self._file.schema_arrow.empty_table()
        self._held = {g: self._held.get(g) or self._file.read_row_group(g) for g in range(first, last + 1)}
        whole = pa.concat_tables(self._held.values()).unify_dictionaries()
        # Taking (not slicing) copies the rows, so that one tree does not keep a whole row group alive.
        return whole.take(np.arange(start, stop) - self._starts[first])
