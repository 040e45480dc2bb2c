"""Forests on disk: `nodes.parquet` (a row per node), `events.parquet` (a row per event), `trees.parquet` (per tree).

A forest is a folder that appears whole or not at all. A run appends by writing one such folder per step, named so that
DuckDB, Polars and pandas see the step as a column (`step=12`). `rolltree.tree.store.archive` reads them without
objects.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rolltree.tree.forest import Forest
from rolltree.tree.node import BIRTHS, FINISHES, ROLES, STATUSES, Node
from rolltree.tree.store import columns
from rolltree.tree.store.arrow import ArrowSchema, ArrowTable, restored
from rolltree.tree.store.atomic import new_folder, set_aside
from rolltree.tree.store.values import States, StoreError, read_json
from rolltree.tree.tree import Tree

FILES = ("nodes", "events", "trees")
ROWS = 32_768
"""Most nodes in one row group, and so in memory twice while saving."""
ACTIONS = 1 << 24
"""Most action numbers in one row group; keeps list offsets far below 32 bits."""
_KEY = b"rolltree"
_FINISHES = (*FINISHES, None)


def save(forest: Iterable[Tree], folder: Path | str, *, overwrite: bool = False, states: States = "keep") -> Path:
    """Write a forest as a folder of three files, atomically. Refuses a folder that exists unless told to overwrite.

    Every environment state must be a plain value or of a registered class (see `rolltree.tree.store.values`);
    `states="drop"` leaves them out, for archives nothing continues from.
    """
    trees = list(forest)
    with new_folder(Path(folder), overwrite=overwrite) as partial, _uncollected():
        _write(trees, partial, states)
    return Path(folder)


def save_step(forest: Iterable[Tree], folder: Path | str, step: int, **options: Any) -> Path:
    """Write the forest of one step of a run into its own part of a folder; `options` as for `save`."""
    return save(forest, Path(folder) / f"step={step}", **options)


def load(folder: Path | str) -> Forest:
    """Read a saved forest whole. Equal to what was saved: ids, arrays, scores, states, notes and events."""
    with _uncollected():
        return Forest(list(read_trees(Path(folder))))


def parts(folder: Path | str) -> list[tuple[int | None, Path]]:
    """The saved forests in a folder with their steps: the folder itself, or one part per step."""
    root = Path(folder)
    steps = sorted((int(p.name[5:]), p) for p in root.glob("step=*") if p.name[5:].isdigit())
    return [*steps] or [(None, root)]


def open_file(folder: Path, name: str) -> pq.ParquetFile:
    """One file of a saved forest, with its schema version checked."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        aside = set_aside(folder)
        if not folder.exists() and aside.exists():
            raise StoreError(f"{folder} was being overwritten when the writer died; rename {aside} to it to restore it")
        raise StoreError(f"{folder} holds no saved forest: {path.name} is missing")
    with readable(path):
        words = {*columns.WORDS} & {*pq.read_schema(path, memory_map=True).names} if name == "nodes" else None
        file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True, read_dictionary=words)
        found: dict[str, Any] = read_json((file.schema_arrow.metadata or {}).get(_KEY, b"{}"))
    if "version" not in found:
        raise StoreError(f"{path} was not written by Rolltree; write forests with rolltree.tree.store.parquet.save")
    if found["version"] > columns.SCHEMA_VERSION:
        raise StoreError(f"{path} has schema version {found['version']}, newer than this Rolltree reads; upgrade it")
    if found["version"] < columns.SCHEMA_VERSION:
        raise StoreError(f"{path} has schema version {found['version']}, of Rolltree 0.1; open it with that version")
    return file


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Turn whatever a damaged file makes Arrow say into one sentence that names the file."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{path} is damaged or half-written ({cause}); restore it or save the forest again") from None


def read_trees(folder: Path) -> Iterator[Tree]:
    """The trees of one saved forest, one after the other."""
    files = {name: open_file(folder, name) for name in FILES}
    with readable(folder / "trees.parquet"):
        heads = files["trees"].read()
    check_counts(folder, heads, {name: files[name].metadata.num_rows for name in FILES})
    nodes = (n for table in _groups(files["nodes"]) for n in columns.read_nodes(table))
    events = (e for table in _groups(files["events"]) for e in columns.read_events(table))
    for head in heads.to_pylist():
        with readable(folder / "nodes.parquet"):
            tree = assemble(head, islice(nodes, head["nodes"]))
        with readable(folder / "events.parquet"):
            tree.events = list(islice(events, head["events"]))
        yield tree


def assemble(head: dict[str, Any], nodes: Iterable[Node]) -> Tree:
    """A tree from its row in `trees.parquet` and its nodes, parents first."""
    tree = Tree.empty(restored(head["tree"]), task=restored(head["task"]), item=restored(head["item"]))
    tree.notes = {} if head["notes"] is None else columns.loads(head["notes"])
    for node in nodes:
        _check_words(tree.id, node)
        tree.adopt(node)
    tree.nodes = dict(sorted(tree.nodes.items()))
    return tree


def check_counts(folder: Path, heads: ArrowTable, rows: dict[str, int]) -> None:
    """Refuse a folder whose files were not saved together."""
    for name in ("nodes", "events"):
        said = sum(heads[name].to_pylist())
        if said != rows[name]:
            raise StoreError(
                f"{folder} mixes files of different saves: trees.parquet counts {said} {name}, "
                f"{name}.parquet has {rows[name]}; restore the folder or save the forest again"
            )


def _write(trees: list[Tree], folder: Path, states: States) -> None:
    schema = columns.node_schema(columns.action_kinds(trees))
    _write_file(folder / "nodes.parquet", schema, (columns.write_nodes(c, schema, states) for c in _chunks(trees)))
    events = [(t.id, e) for t in trees for e in t.events]
    tables = (columns.write_events(events[i : i + ROWS]) for i in range(0, len(events), ROWS))
    _write_file(folder / "events.parquet", columns.EVENTS, tables)
    _write_file(folder / "trees.parquet", columns.TREES, [columns.write_trees(trees)])


def _write_file(path: Path, schema: ArrowSchema, tables: Iterable[ArrowTable]) -> None:
    words = [f.name for f in schema if pa.types.is_string(f.type)]
    stamp = {_KEY: json.dumps({"version": columns.SCHEMA_VERSION, "table": path.stem})}
    stamped = schema.with_metadata(stamp)
    options: dict[str, Any] = {"use_dictionary": words, "compression_level": 1, "write_page_checksum": True}
    with pq.ParquetWriter(path, stamped, compression="zstd", **options) as writer:
        for table in tables:
            writer.write_table(table.cast(stamped), row_group_size=len(table) or 1)


def _chunks(trees: list[Tree]) -> Iterator[list[tuple[str, Node]]]:
    rows: list[tuple[str, Node]] = []
    size = 0
    for tree in trees:
        for node in tree.walk():
            width = node.actions.size + (0 if node.top is None else node.top.ids.size)
            if rows and (len(rows) == ROWS or size + width > ACTIONS):
                yield rows
                rows, size = [], 0
            rows.append((tree.id, node))
            size += width
    if rows:
        yield rows


def _groups(file: pq.ParquetFile) -> Iterator[ArrowTable]:
    for group in range(file.num_row_groups):
        yield file.read_row_group(group)


@contextmanager
def _uncollected() -> Generator[None]:
    # Neither nodes nor rows form cycles, and a collector that looks through millions of them doubles the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_words(tree: str, node: Node) -> None:
    if node.role in ROLES and node.birth in BIRTHS and node.status in STATUSES and node.finish in _FINISHES:
        return
    for name, known in (("role", ROLES), ("birth", BIRTHS), ("status", STATUSES), ("finish", _FINISHES)):
        if getattr(node, name) not in known:
            raise StoreError(f"node {node.id} of tree {tree!r} has the unknown {name} {getattr(node, name)!r}")
