"""Saved forests as columns: millions of nodes open in seconds, and a tree becomes objects only when it is asked for.

Columns are read when first touched and kept. Rows are the nodes of all parts in order, depth first within a tree, so a
parent's row precedes its children's and a subtree is a slice of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rolltree.tree.node import Array
from rolltree.tree.shape import Ints, Shape, offsets, parent_rows
from rolltree.tree.source import EventColumns, Notes
from rolltree.tree.store.arrow import ArrowColumn, ArrowTable, flatten, stored
from rolltree.tree.store.parquet import FILES, parts, read_trees, readable
from rolltree.tree.store.part import Part
from rolltree.tree.store.values import StoreError, read_json
from rolltree.tree.tree import Tree

_COMPUTE: Any = pc
"""Arrow's functions are generated at import, where no type checker sees them."""


class Archive:
    """The forests saved in a folder (one, or a part per step), read lazily. Make it with `open_forest`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._parts = [Part(path, step) for step, path in parts(folder)]
        self._columns: dict[str, ArrowColumn] = {}
        self._flat: dict[str, tuple[Array, Ints]] = {}

    def __len__(self) -> int:
        """Number of nodes."""
        return sum(p.rows for p in self._parts)

    @cached_property
    def trees(self) -> list[tuple[int | None, str]]:
        """Step (None outside runs) and id of every tree, in order."""
        return [(p.step, id) for p in self._parts for id in p.ids]

    @cached_property
    def tree_start(self) -> Ints:
        """Row of each tree's root, and the number of rows at the end."""
        return offsets(np.concatenate([p.sizes for p in self._parts]))

    @property
    def shape(self) -> Shape:
        """Rows of parents, subtrees and leaves."""
        return self._shape

    @cached_property
    def _shape(self) -> Shape:
        tree = np.repeat(np.arange(len(self.trees)), np.diff(self.tree_start))
        with readable(self.folder):
            return Shape(tree, parent_rows(tree, self.numbers("id"), self.numbers("parent", missing=-1)))

    @property
    def ids(self) -> Sequence[str]:
        """Names of the trees."""
        return self._ids

    @cached_property
    def _ids(self) -> list[str]:
        return [id for _, id in self.trees]

    def column(self, name: str) -> ArrowColumn:
        """A column of nodes.parquet over all parts, as Arrow's chunked array."""
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def numbers(self, name: str, missing: Any = None) -> Array:
        """A column of numbers or truth values as a numpy array; `missing` stands where there is none."""
        column = self.column(name)
        return (column if missing is None else column.fill_null(missing)).to_numpy()

    def words(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as codes and the words they stand for; -1 where there is none."""
        coded = self.column(name)
        if not pa.types.is_dictionary(coded.type):
            coded = coded.dictionary_encode()
        whole = coded.unify_dictionaries().combine_chunks()
        whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
        words = whole.dictionary.to_pylist()
        return whole.indices.fill_null(-1).to_numpy().astype(np.int64), words

    def ragged(self, name: str) -> tuple[Array, Ints]:
        """A per-action column of all nodes laid end to end, and the rows' offsets; a node without it has no entries."""
        if name not in self._flat:
            self._flat[name] = flatten(self._read(name))
        return self._flat[name]

    def scores(self, name: str) -> NDArray[np.float64]:
        """A named score per row; NaN where it was not given."""
        found = _COMPUTE.map_lookup(self.column("scores"), pa.scalar(str(stored(name))), "first")
        return found.fill_null(np.nan).to_numpy()

    def score_names(self) -> set[str]:
        """Names of all scores given anywhere."""
        return {name for chunk in self.column("scores").chunks for name in chunk.keys.unique().to_pylist() if name}

    def notes(self, rows: Ints) -> Iterator[Notes]:
        """The notes of some nodes; their top level is plain JSON."""
        texts = self.column("notes").take(rows).to_pylist()
        return ({} if text is None else cast("Notes", read_json(text)) for text in texts)

    def tree_notes(self) -> Iterator[Notes]:
        """The notes of every tree; their top level is plain JSON."""
        texts = (text for part in self._parts for text in part.tree_notes())
        return ({} if text is None else cast("Notes", read_json(text)) for text in texts)

    def events(self) -> EventColumns:
        """All events."""
        return self._events

    @cached_property
    def _events(self) -> EventColumns:
        table = pa.concat_tables([p.events() for p in self._parts])
        columns = {name: table[name].to_pylist() for name in ("kind", "why", "numbers")}
        return EventColumns(
            np.repeat(np.arange(len(self.trees)), np.concatenate([p.event_counts for p in self._parts])),
            table["node"].fill_null(-1).to_numpy().astype(np.int64),
            columns["kind"], columns["why"], table["at"].to_numpy(), columns["numbers"],
        )  # fmt: skip

    def _read(self, name: str) -> ArrowColumn:
        chunks = [p.column(name) for p in self._parts]
        known = [c.type for c in chunks if c is not None]
        if not known:
            names = ", ".join(self._parts[0].nodes.schema_arrow.names)
            raise StoreError(f"{self.folder} has no column {name!r}; it has {names}")
        filled = [pa.nulls(p.rows, known[0]) if c is None else c for p, c in zip(self._parts, chunks, strict=True)]
        arrays = [a for c in filled for a in (c.chunks if isinstance(c, pa.ChunkedArray) else [c])]
        return pa.chunked_array(arrays, known[0])

    def tree(self, id: str, step: int | None = None) -> Tree:
        """One tree with its nodes and events. Name the step when several steps have a tree of that id."""
        found = [(p, i) for p in self._parts if step in (None, p.step) for i in p.find(id)]
        if not found:
            raise StoreError(f"{self.folder} has no tree {id!r}" + ("" if step is None else f" at step {step}"))
        if len(found) > 1:
            steps = ", ".join(str(p.step) for p, _ in found)
            raise StoreError(f"{self.folder} has a tree {id!r} at steps {steps}; name one with step=…")
        part, index = found[0]
        return part.tree(index)

    def __iter__(self) -> Iterator[Tree]:
        """Every tree, one after the other; only some tens of thousands of rows are in memory at a time."""
        return (tree for part in self._parts for tree in read_trees(part.folder))

    def sql(self, query: str) -> ArrowTable:
        """The Arrow table a DuckDB query over the tables `nodes`, `events` and `trees` gives."""
        try:
            import duckdb
        except ImportError:
            raise StoreError("SQL over a forest needs DuckDB: pip install 'rolltree[duckdb]'") from None
        with duckdb.connect() as base:
            for name in FILES:
                base.execute(f"CREATE VIEW {name} AS {self._view(name)}")
            try:
                return base.sql(query).to_arrow_table()
            except duckdb.Error as error:
                raise StoreError(f"DuckDB refused the query: {str(error).splitlines()[0]}") from None

    def _view(self, name: str) -> str:
        """What DuckDB reads for one of the three files."""
        hive = "true" if self._parts[0].step is not None else "false"
        files = ", ".join(_quoted(part.folder / f"{name}.parquet") for part in self._parts)
        return f"SELECT * FROM read_parquet([{files}], union_by_name=true, hive_partitioning={hive})"


def open_forest(folder: Path | str) -> Archive:
    """Open a saved forest, or all steps of a run, without reading the nodes."""
    return Archive(folder)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
