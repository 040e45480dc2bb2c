"""List, word and map columns of Arrow as numpy arrays and Python lists, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rolltree.tree.node import Array
from rolltree.tree.store.values import read_json

# pyarrow ships no types; these names keep signatures readable.
ArrowTable: TypeAlias = Any
ArrowSchema: TypeAlias = Any
ArrowColumn: TypeAlias = Any
ArrowArray: TypeAlias = Any
ArrowType: TypeAlias = Any

MARK = "\x10rolltree:"
"""What stands before a text that is stored as JSON. Files hold Unicode, and a text may hold halves of characters."""


def as_array(column: Any, type: ArrowType) -> ArrowArray:
    """A list (or an array as it is) as an Arrow array of that type; see `stored` for texts that no file can hold."""
    if isinstance(column, pa.Array):
        return column
    try:
        return pa.array(column, type)
    except UnicodeEncodeError:
        return pa.array([stored(text) for text in column], type)


def stored(text: str | None) -> str | None:
    """A text as a file holds it: with half a character in it, behind a mark and written as JSON."""
    try:
        if text is not None:
            text.encode()
    except UnicodeEncodeError:
        return MARK + json.dumps(text)
    return text


def restored(text: Any) -> Any:
    """The text that `stored` was given."""
    if not (isinstance(text, str) and text.startswith(MARK)):
        return text
    try:
        return read_json(text.removeprefix(MARK))
    except ValueError:
        return text


def arrow_type(kind: str) -> ArrowType:
    """Arrow's type of a numpy type's name."""
    return pa.from_numpy_dtype(np.dtype(kind))


def ragged(arrays: Sequence[Array | None], kind: str) -> ArrowArray:
    """Arrays of any length as a list column of one numpy type, row-major; None becomes null."""
    present = [a for a in arrays if a is not None]
    if not present:
        return pa.nulls(len(arrays), pa.list_(arrow_type(kind)))
    whole = len(present) == len(arrays)
    sizes = [a.size for a in present] if whole else [0 if a is None else a.size for a in arrays]
    offsets = np.zeros(len(arrays) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    values = pa.array(np.concatenate(present, axis=None).astype(kind, copy=False))
    nulls = None if whole else pa.array([a is None for a in arrays])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=nulls, type=pa.list_(arrow_type(kind)))


def map_array(maps: Sequence[Mapping[str, float]]) -> ArrowArray:
    """Dictionaries of numbers as a map column."""
    offsets = np.zeros(len(maps) + 1, np.int32)
    np.cumsum(np.fromiter((len(m) for m in maps), np.int64, len(maps)), out=offsets[1:])
    keys = as_array([k for m in maps for k in m], pa.string())
    values = pa.array([float(v) for m in maps for v in m.values()], pa.float64())
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values)


def flatten(column: ArrowColumn) -> tuple[Array, NDArray[np.int64]]:
    """A list column as one flat array and the offsets of its rows; a null row is an empty one."""
    flat = [c.flatten().to_numpy(zero_copy_only=False) for c in column.chunks]
    dtype = np.dtype(column.type.value_type.to_pandas_dtype())
    values = flat[0] if len(flat) == 1 else np.concatenate(flat) if flat else np.zeros(0, dtype)
    counts = [c.value_lengths().fill_null(0).to_numpy(zero_copy_only=False) for c in column.chunks]
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(np.concatenate(counts) if counts else np.zeros(0, np.int64), out=offsets[1:])
    return values, offsets


def slices(column: ArrowColumn) -> list[Any]:
    """The rows of a list column as writable arrays, None where null."""
    if column.null_count == len(column):
        return [None] * len(column)
    values, offsets = flatten(column)
    values = values.copy() if not values.flags.writeable else values
    at = offsets.tolist()
    if column.null_count == 0:
        return [values[a:b] for a, b in pairwise(at)]
    valid = column.is_valid().to_pylist()
    return [values[a:b] if ok else None for ok, a, b in zip(valid, at, at[1:], strict=False)]


def words_of(column: ArrowColumn) -> list[Any]:
    """A column of few distinct strings as a list in which equal strings are one object."""
    out: list[Any] = []
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        names = [*map(restored, coded.dictionary.to_pylist()), None]
        out += [names[i] for i in coded.indices.fill_null(-1).to_numpy().tolist()]
    return out


def dicts(column: ArrowColumn) -> list[dict[str, float]]:
    """A map column as dictionaries."""
    out: list[dict[str, float]] = []
    for chunk in column.chunks:
        lo = chunk.offsets.to_pylist()
        names = pa.chunked_array([chunk.keys.dictionary_encode()])
        keys, values = words_of(names), chunk.items.to_pylist()
        out += [dict(zip(keys[a:b], values[a:b], strict=True)) for a, b in pairwise(lo)]
    return out
