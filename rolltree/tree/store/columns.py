"""Nodes and events as Arrow columns, and back: the schema of the stored forest.

One row per node, depth first, so parents precede children. A per-action array is a list column; null means the node has
none. Token ids stand in `actions` (int32); actions of any other type in `actions_<type>`, row-major, with the trailing
shape in `shape`, so that files of one kind of run have one schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rolltree.tree.node import DTYPE, PER_ACTION, Array, Event, Node, Top
from rolltree.tree.store.arrow import (
    ArrowSchema,
    ArrowTable,
    arrow_type,
    as_array,
    dicts,
    map_array,
    ragged,
    restored,
    slices,
    words_of,
)  # fmt: skip
from rolltree.tree.store.values import States, StoreError, dumps, loads
from rolltree.tree.tree import Tree

SCHEMA_VERSION = 2
WORDS = ("tree", "role", "actor", "birth", "status", "finish", "usage")
"""Columns of few distinct strings."""
PLAIN = (("id", pa.int32()), ("parent", pa.int32()), ("level", pa.int32()), ("trainable", pa.bool_()),
         ("forced", pa.bool_()), ("state_key", pa.string()))  # fmt: skip
ENCODED = ("notes", "state")
_SCORES = pa.map_(pa.string(), pa.float64())
_ARROW = {np.float32: pa.float32(), np.int32: pa.int32(), np.bool_: pa.bool_()}
_KINDS = "biuf"

EVENTS = pa.schema(
    [("tree", pa.string()), ("node", pa.int32()), ("kind", pa.string()), ("why", pa.string()),
     ("numbers", pa.string()), ("at", pa.float64())]
)  # fmt: skip
TREES = pa.schema(
    [("tree", pa.string()), ("task", pa.string()), ("item", pa.string()), ("notes", pa.string()),
     ("nodes", pa.int64()), ("events", pa.int64())]
)  # fmt: skip


def node_schema(kinds: Sequence[str]) -> ArrowSchema:
    """The schema of node files whose actions have these numpy types (by name)."""
    return pa.schema(
        [("tree", pa.string()), *PLAIN[:2], ("role", pa.string()), ("actor", pa.string()), ("length", pa.int32())]
        + [(_actions_column(k), pa.list_(arrow_type(k))) for k in ("int32", *sorted({*kinds} - {"int32"}))]
        + [("shape", pa.list_(pa.int32()))]
        + [(name, pa.list_(_ARROW[DTYPE[name]])) for name in PER_ACTION]
        + [("top_ids", pa.list_(pa.int32())), ("top_logp", pa.list_(pa.float32())), ("top_k", pa.int32())]
        + [*PLAIN[2:5], ("birth", pa.string()), ("status", pa.string()), ("finish", pa.string())]
        + [("usage", pa.string()), ("scores", _SCORES), PLAIN[5], *((name, pa.string()) for name in ENCODED)]
    )


def write_nodes(rows: Sequence[tuple[str, Node]], schema: ArrowSchema, states: States) -> ArrowTable:
    """Some nodes (with their trees' ids) as a table of that schema."""
    nodes = [n for _, n in rows]
    columns: dict[str, Any] = {
        "tree": [t for t, _ in rows],
        "length": [len(n.actions) for n in nodes],
        "shape": [n.actions.shape[1:] if n.actions.ndim > 1 else None for n in nodes],
        "top_ids": ragged([None if n.top is None else n.top.ids for n in nodes], "int32"),
        "top_logp": ragged([None if n.top is None else n.top.logp for n in nodes], "float32"),
        "top_k": [None if n.top is None else n.top.ids.shape[1] for n in nodes],
        "scores": map_array([n.scores for n in nodes]),
        "notes": [dumps(n.notes) if n.notes else None for n in nodes],
        "state": [_state(t, n) if states == "keep" else None for t, n in rows],
    }
    for field in schema:
        name: str = field.name
        if name in PER_ACTION:
            columns[name] = ragged(list(map(attrgetter(name), nodes)), np.dtype(DTYPE[name]).name)
        elif name.startswith("actions"):
            kind = name.removeprefix("actions_") if name != "actions" else "int32"
            dtype = np.dtype(kind)
            columns[name] = ragged([n.actions if n.actions.dtype == dtype else None for n in nodes], kind)
        elif name not in columns:
            columns[name] = list(map(attrgetter(name), nodes))
    return pa.Table.from_arrays([as_array(columns[f.name], f.type) for f in schema], schema=schema)


def read_nodes(table: ArrowTable) -> Iterator[Node]:
    """The nodes of a table's rows in order, with writable arrays and without children."""
    count = table.num_rows
    words = {name: words_of(table[name]) for name in WORDS}
    plain = {name: table[name].to_pylist() for name, _ in PLAIN}
    plain["state_key"] = list(map(restored, plain["state_key"]))
    lists = {name: slices(table[name]) for name in (*PER_ACTION, "top_ids", "top_logp")}
    lengths, shapes, widths = (table[name].to_pylist() for name in ("length", "shape", "top_k"))
    actions = _actions(table, lengths, shapes)
    scores = dicts(table["scores"])
    encoded = {name: [None if v is None else loads(v) for v in table[name].to_pylist()] for name in ENCODED}
    for i in range(count):
        ids, logp = lists["top_ids"][i], lists["top_logp"][i]
        k = widths[i]
        yield Node(
            plain["id"][i],
            plain["parent"][i],
            words["role"][i],
            actions[i],
            actor=words["actor"][i],
            level=plain["level"][i],
            trainable=plain["trainable"][i],
            forced=plain["forced"][i],
            birth=words["birth"][i],
            status=words["status"][i],
            finish=words["finish"][i],
            usage=words["usage"][i],
            scores=scores[i],
            top=None if ids is None else Top(ids.reshape(lengths[i], k), logp.reshape(lengths[i], k)),
            state_key=plain["state_key"][i],
            state=encoded["state"][i],
            notes=encoded["notes"][i] or {},
            **{name: lists[name][i] for name in PER_ACTION},
        )


def write_events(rows: Sequence[tuple[str, Event]]) -> ArrowTable:
    """Events (with their trees' ids) as a table."""
    numbers = [dumps(dict(e.numbers)) if e.numbers else None for _, e in rows]
    columns = [[t for t, _ in rows], *([getattr(e, f) for _, e in rows] for f in ("node", "kind", "why")), numbers]
    columns.append([e.at for _, e in rows])
    return pa.Table.from_arrays([as_array(c, f.type) for c, f in zip(columns, EVENTS, strict=True)], schema=EVENTS)


def read_events(table: ArrowTable) -> Iterator[Event]:
    """The events of a table's rows in order."""
    columns = (table[name].to_pylist() for name in ("kind", "node", "why", "numbers", "at"))
    for kind, node, why, numbers, at in zip(*columns, strict=True):
        yield Event(kind, node, restored(why), {} if numbers is None else loads(numbers), at)


def write_trees(trees: Sequence[Tree]) -> ArrowTable:
    """What is known of whole trees, and how many rows each has in the other two files."""
    columns = [
        [t.id for t in trees], [t.task for t in trees], [t.item for t in trees],
        [dumps(t.notes) if t.notes else None for t in trees], [len(t) for t in trees], [len(t.events) for t in trees],
    ]  # fmt: skip
    return pa.Table.from_arrays([as_array(c, f.type) for c, f in zip(columns, TREES, strict=True)], schema=TREES)


def action_kinds(trees: Sequence[Tree]) -> list[str]:
    """Names of the numpy types of all actions, refusing types that cannot be stored."""
    found = {n.actions.dtype: (t, n) for t in trees for n in t.nodes.values()}
    for dtype, (tree, node) in found.items():
        if dtype.kind not in _KINDS or dtype.itemsize > 8:
            raise StoreError(
                f"node {node.id} of tree {tree.id!r} has actions of type {dtype}; "
                "only booleans, integers and floats of at most 64 bits can be stored"
            )
    return sorted({dtype.name for dtype in found})


def _state(tree: str, node: Node) -> str | None:
    if node.state is None:
        return None
    try:
        return dumps(node.state)
    except StoreError as error:
        raise StoreError(f"the state of node {node.id} of tree {tree!r} cannot be stored: {error}") from None


def _actions_column(kind: str) -> str:
    return "actions" if kind == "int32" else f"actions_{kind}"


def _actions(table: ArrowTable, lengths: list[int], shapes: list[list[int] | None]) -> list[Array]:
    out: list[Any] = [None] * table.num_rows
    for name in table.column_names:
        if name == "actions" or name.startswith("actions_"):
            for i, array in enumerate(slices(table[name])):
                if array is not None:
                    shape = shapes[i]
                    out[i] = array if shape is None else array.reshape(lengths[i], *shape)
    return out
