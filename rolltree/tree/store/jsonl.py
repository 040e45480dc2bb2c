"""The interchange format: one node per JSON line, writable by hand or by any program.

    {"tree":"t0","id":0,"parent":null,"role":"prompt","actions":[5,3]}
    {"tree":"t0","id":1,"parent":0,"role":"policy","actions":[9,2],"logp":[-0.1,-1.2],"scores":{"reward":1.0}}

`tree, id, role, actions` are required, and `parent` for all but roots; parents precede children; trees may interleave.
Every other field is one of a node's (see `Node`), with its default if left out, except that `trainable` defaults to
role = policy and `status` to done. In numbers `null` is NaN and "inf", "-inf" are infinite. `dtype` and (trailing)
`shape` are needed only for actions other than int32 or float32, or empty ones. A root's line may carry the tree's
`task, item, tree_notes`. Events are not part of the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from rolltree.tree.forest import Forest
from rolltree.tree.node import DTYPE, PER_ACTION, Node
from rolltree.tree.store.atomic import new_file
from rolltree.tree.store.fieldtypes import FieldError, convert, numbers, unknown_field
from rolltree.tree.store.values import States, StoreError, encode, read_json, revive
from rolltree.tree.tree import Tree

_DEFAULTS: dict[str, Any] = {
    "actor": "policy", "level": 0, "forced": False, "birth": "root", "finish": None, "usage": "", "scores": {},
    "state": None, "state_key": None, "notes": {}, "top": None, **dict.fromkeys(PER_ACTION),
}  # fmt: skip
_REQUIRED = ("tree", "id", "role", "actions")
_OF_TREE = ("task", "item", "tree_notes")
_KNOWN = (*_REQUIRED, "parent", "dtype", "shape", "status", "trainable", *_DEFAULTS, *_OF_TREE)


def read(path: Path | str) -> Forest:
    """The forest a file of JSON lines holds. Errors name the file, the line and the field."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as source:
            return parse(source, str(path))
    except UnicodeDecodeError as error:
        raise StoreError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); is it a JSON-lines file?"
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None


def parse(lines: Iterable[str], name: str = "input") -> Forest:
    """The forest that JSON lines hold; `name` stands for the file in errors."""
    forest = Forest()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            _add(forest, _row(line))
        except FieldError as error:
            raise StoreError(f"{name} line {number}, field {error.field!r}: {error}") from None
        except StoreError as error:
            raise StoreError(f"{name} line {number}: {error}") from None
    for tree in forest:
        tree.nodes = dict(sorted(tree.nodes.items()))
    return forest


def write(forest: Iterable[Tree], path: Path | str, *, overwrite: bool = False, states: States = "keep") -> Path:
    """Write a forest as JSON lines, atomically; `read` gives back equal trees without their events.

    `states="drop"` leaves environment states out, so that any program can read the file; their keys stay.
    """
    return _write(lines(forest, states), Path(path), overwrite)


def lines(forest: Iterable[Tree], states: States = "keep") -> Iterator[str]:
    """The JSON line of every node, parents before children."""
    for tree in forest:
        for node in tree.walk():
            try:
                row = _line(tree, node, states)
                yield json.dumps(row, separators=(",", ":"), allow_nan=False)
            except (StoreError, TypeError) as error:
                raise StoreError(f"node {node.id} of tree {tree.id!r} cannot be written: {error}") from None


def write_credit(forest: Iterable[Tree], path: Path | str, *, overwrite: bool = False) -> Path:
    """Write `{"tree","id","gain":[…],"loss":[…]}` for every trained node that was given credit, atomically."""
    return _write(credit_lines(forest), Path(path), overwrite)


def credit_lines(forest: Iterable[Tree]) -> Iterator[str]:
    """The JSON line of every trained node with credit; a channel it lacks is zero."""
    for tree in forest:
        for node in tree.walk():
            if node.trainable and not (node.gain is None and node.loss is None):
                zero = np.zeros(len(node), np.float32)
                channels = {n: numbers(zero if a is None else a) for n, a in (("gain", node.gain), ("loss", node.loss))}
                yield json.dumps({"tree": tree.id, "id": node.id} | channels, separators=(",", ":"))


def _write(texts: Iterator[str], path: Path, overwrite: bool) -> Path:
    with new_file(path, overwrite=overwrite) as sink:
        sink.writelines(f"{text}\n" for text in texts)
    return path


def _row(line: str) -> dict[str, Any]:
    try:
        row = read_json(line, object_hook=revive)
    except StoreError:
        raise
    except ValueError as error:
        raise StoreError(f"not a complete JSON object ({error}); the file may be half-written") from None
    if not isinstance(row, dict):
        raise StoreError(f"a line must be a JSON object, not {line.strip()[:40]!r}")
    row = cast(dict[str, Any], row)
    for name in row:
        if name not in _KNOWN:
            raise unknown_field(str(name), _KNOWN)
    for name in _REQUIRED:
        if name not in row:
            raise FieldError(name, "is missing")
    return row


def _add(forest: Forest, row: dict[str, Any]) -> None:
    fields = convert(row)
    id, parent = fields.pop("tree"), fields.pop("parent", None)
    of_tree = {name: fields.pop(name) for name in _OF_TREE if name in fields}
    if id not in forest:
        forest.add(Tree.empty(id))
    tree = forest[id]
    if parent is None:
        if tree.nodes:
            raise FieldError("parent", f"is missing: tree {id!r} already has the root {tree.root.id}")
        tree.task, tree.item = of_tree.get("task", ""), of_tree.get("item", "")
        tree.notes = of_tree.get("tree_notes", {})
    elif of_tree:
        raise FieldError(next(iter(of_tree)), "belongs on the line of the tree's root")
    elif parent not in tree.nodes:
        raise FieldError("parent", f"names node {parent}, which no line of tree {id!r} before this one defines")
    if fields["id"] in tree.nodes:
        raise FieldError("id", f"{fields['id']} stands twice in tree {id!r}")
    fields.setdefault("status", "done")
    fields.setdefault("trainable", fields["role"] == "policy")
    tree.adopt(Node(parent=parent, **fields))


def _line(tree: Tree, node: Node, states: States) -> dict[str, Any]:
    row: dict[str, Any] = {"tree": tree.id, "id": node.id, "parent": node.parent, "role": node.role}
    actions = node.actions
    row["actions"] = numbers(actions)
    plain = np.dtype(np.int32 if actions.dtype.kind in "iu" else np.bool_ if actions.dtype.kind == "b" else np.float32)
    if actions.dtype != (plain if actions.size else np.int32):
        row["dtype"] = actions.dtype.name
    if actions.ndim > 1 and not actions.size:
        row["shape"] = list(actions.shape[1:])
    if node.trainable != (node.role == "policy"):
        row["trainable"] = node.trainable
    row["status"] = node.status
    for name, default in _DEFAULTS.items():
        value = default if name == "state" and states == "drop" else getattr(node, name)
        if name in DTYPE:
            if value is not None:
                row[name] = numbers(value)
        elif value is not default and value != default:
            row[name] = _value(name, value)
    if node.parent is None:
        extra = {"task": tree.task, "item": tree.item, "tree_notes": encode(tree.notes)}
        row |= {name: value for name, value in extra.items() if value}
    return row


def _value(name: str, value: Any) -> Any:
    if name == "scores":
        # Encoded, because a lone name with a $ in front would otherwise read as one of the stored values' tags.
        return encode(dict(zip(value, numbers(np.array(list(value.values()), np.float64)), strict=True)))
    if name == "top":
        return {"k": value.ids.shape[1], "ids": numbers(value.ids), "logp": numbers(value.logp)}
    return encode(value)
