"""Per-action arrays: their types, and how they are checked and joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rolltree.errors import RolltreeError
from rolltree.tree.node import PER_ACTION, Array, FloatArray, Node, Top


class TreeError(RolltreeError, ValueError):
    """An operation that would break a tree; the message names the node, the value and the way out."""


DTYPE: Mapping[str, Any] = dict.fromkeys(PER_ACTION, np.float32) | {"version": np.int32, "keep": np.bool_}
"""Element type of each per-action array."""

FILL: Mapping[str, Any] = dict.fromkeys(PER_ACTION, np.nan) | {
    "version": -1, "keep": True, "gain": 0.0, "loss": 0.0, "weight": 0.0,
}  # fmt: skip
"""What stands for "not given" in an array that other actions of the run do have."""


def as_actions(actions: Sequence[Any] | Array, like: Array | None = None) -> Array:
    """Actions as an array; a plain list of ints becomes int32, and any other list takes the type of `like`."""
    if isinstance(actions, np.ndarray):
        return actions
    if len(actions) == 0:
        return np.zeros(0, np.int32) if like is None else like[:0]
    array = np.asarray(actions)
    if array.dtype.kind in "iu":
        small = array.astype(np.int32)
        return small if np.array_equal(small, array) else array
    return array.astype(like.dtype) if like is not None and like.dtype.kind == array.dtype.kind else array


def settle(where: str, node: Node) -> None:
    """Give a new node's arrays their types and refuse those whose length differs from the actions'."""
    count = len(node.actions)
    for name in PER_ACTION:
        given = getattr(node, name)
        if given is None:
            continue
        array = _typed(given, DTYPE[name])
        if array.shape != (count,):
            raise TreeError(f"{where}: {name} has {_size(array)} for {count} actions")
        if array is not given:
            setattr(node, name, array)
    if node.top is not None:
        check_top(where, node.top, count)


def check_top(where: str, top: Top, count: int) -> None:
    """Refuse alternatives that are not one row of equal width per action."""
    if top.ids.ndim != 2 or top.ids.shape != top.logp.shape or len(top.ids) != count:
        raise TreeError(
            f"{where}: top has ids of shape {top.ids.shape} and logp of shape {top.logp.shape} for {count} actions; "
            f"both must be ({count}, k)"
        )


def joined(name: str, old: Array | None, before: int, new: Any, added: int, *, where: str) -> Array | None:
    """A per-action array continued by `added` entries; what one side lacks is filled. None where both lack it."""
    if old is None and new is None:
        return None
    dtype = DTYPE[name]
    left = np.full(before, FILL[name], dtype) if old is None else old
    right: Array = np.full(added, FILL[name], dtype) if new is None else _typed(new, dtype)
    if right.shape != (added,):
        raise TreeError(f"{where}: {name} has {_size(right)} for {added} appended actions")
    return np.concatenate([left, right])


def joined_top(where: str, old: Top | None, before: int, new: Top | None, added: int) -> Top | None:
    """Alternatives continued. They cannot be filled, so a run that lacks them for some actions has none."""
    if new is not None:
        check_top(where, new, added)
    if before == 0:
        return new
    if old is None or new is None:
        return None
    if old.ids.shape[1] != new.ids.shape[1]:
        raise TreeError(f"{where}: top has {new.ids.shape[1]} alternatives per action, not {old.ids.shape[1]}")
    logp: FloatArray = np.concatenate([old.logp, new.logp])
    return Top(np.concatenate([old.ids, new.ids]), logp)


def _typed(array: Any, dtype: DTypeLike) -> Array:
    return array if isinstance(array, np.ndarray) and array.dtype == dtype else np.asarray(array, dtype)


def _size(array: Array) -> str:
    return f"{len(array)} entries" if array.ndim == 1 else f"shape {array.shape}"
