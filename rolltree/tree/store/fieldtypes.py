"""What each field of an interchange line may hold, and its conversion; errors carry the field's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from rolltree.errors import did_you_mean
from rolltree.tree.node import BIRTHS, DTYPE, FINISHES, PER_ACTION, ROLES, STATUSES, Array, Top
from rolltree.tree.store.values import StoreError

MAX_ID = 2**31 - 1


class FieldError(StoreError):
    """A field of an interchange line holds what it must not; the message goes on after the field's name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


def unknown_field(name: str, known: Iterable[str]) -> FieldError:
    """The error for a field the format does not have, with the nearest one it has."""
    hint = did_you_mean(name, known) or "put data of your own under 'notes'"
    return FieldError(name, f"is not part of the format; {hint}")


def convert(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a line as keyword arguments of `Node` (and those of its tree), checked."""
    out = {name: _CHECKS[name](name, value) for name, value in row.items() if name in _CHECKS}
    actions = _actions(row)
    out["actions"] = actions
    for name in PER_ACTION:
        if row.get(name) is not None:
            out[name] = _array(name, row[name], DTYPE[name])
            if out[name].shape != (len(actions),):
                size = f"{len(out[name])} entries" if out[name].ndim == 1 else f"shape {out[name].shape}"
                raise FieldError(name, f"has {size} for {len(actions)} actions")
    if row.get("top") is not None:
        out["top"] = _top(row["top"], len(actions))
    return out


def numbers(array: Array) -> list[Any]:
    """An array as JSON numbers: the shortest ones that read back as the same values, null for NaN."""
    if array.dtype.kind != "f":
        return array.tolist()
    if array.ndim > 1:
        return [numbers(row) for row in array]
    return [_number(s) for s in array.astype(np.str_).tolist()]


def _number(text: str) -> Any:
    return None if text == "nan" else text if "inf" in text else float(text)


def _actions(row: Mapping[str, Any]) -> Array:
    given = row["actions"]
    kind = row.get("dtype")
    if kind is not None and kind not in _ACTION_TYPES:
        raise FieldError("dtype", f"is {kind!r}; known: {', '.join(_ACTION_TYPES)}")
    array = _array("actions", given, kind)
    if kind is None and array.dtype.kind in "iu":
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            raise FieldError("actions", 'holds numbers beyond 32 bits; add "dtype":"int64"')
        array = array.astype(np.int32)
    elif kind is None and array.dtype.kind == "f":
        array = array.astype(np.float32 if array.size else np.int32)
    shape = row.get("shape")
    if shape is None:
        return array
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in cast(list[Any], shape)):
        raise FieldError("shape", f"must be a list of sizes, not {shape!r}")
    try:
        return array.reshape(len(array), *cast(list[int], shape))
    except ValueError:
        raise FieldError("shape", f"is {shape} but each action has shape {list(array.shape[1:])}") from None


def _array(name: str, given: Any, dtype: Any) -> Array:
    if not isinstance(given, list):
        raise FieldError(name, f"must be a list, not {given!r}")
    try:
        array = np.asarray(cast(list[Any], given))
    except (ValueError, OverflowError):
        raise FieldError(name, "must be a list whose entries all have one shape") from None
    if array.dtype.kind in "OU" and array.size:
        array = np.vectorize(lambda v: _special(name, v), otypes=[np.float64])(np.asarray(given, object))
    want = np.dtype(dtype) if dtype is not None else array.dtype
    allowed = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}[want.kind]
    if array.size and array.dtype.kind not in allowed:
        raise FieldError(name, f"must hold {_WORDS[want.kind]}, not {_first(given)!r}")
    if array.size and want.kind in "iu" and (array.min() < np.iinfo(want).min or array.max() > np.iinfo(want).max):
        raise FieldError(name, f"holds numbers that do not fit {want}")
    return array.astype(want)


def _special(name: str, value: Any) -> float:
    if value is None:
        return np.nan
    if value in ("inf", "-inf") or type(value) in (int, float):
        return float(value)
    raise FieldError(name, f'must hold numbers, null for NaN, or "inf" and "-inf", not {value!r}')


def _first(given: Any) -> Any:
    return _first(given[0]) if isinstance(given, list) and given else given


def _top(given: Any, count: int) -> Top:
    if not isinstance(given, dict) or not {"ids", "logp"} <= given.keys() <= {"ids", "logp", "k"}:
        raise FieldError("top", 'must be an object {"ids":[[…]],"logp":[[…]]} with one row per action')
    ids, logp = _array("top", given["ids"], np.int32), _array("top", given["logp"], np.float32)
    k = given.get("k", ids.shape[-1] if ids.ndim == 2 else 0)
    try:
        return Top(ids.reshape(count, k), logp.reshape(count, k))
    except (ValueError, TypeError):
        raise FieldError(
            "top", f"has ids of shape {ids.shape} and logp of shape {logp.shape}, not ({count}, {k})"
        ) from None


def _typed(*types: type, word: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if type(value) not in types:
            raise FieldError(name, f"must be {word}, not {value!r}")
        return value

    return check


def _one_of(known: tuple[Any, ...]) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if value not in known:
            raise FieldError(name, f"is {value!r}; known: {', '.join(str(k) for k in known if k is not None)}")
        return value

    return check


def _id(name: str, value: Any) -> Any:
    if value is None and name == "parent":
        return None
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise FieldError(name, f"must be an integer from 0 to {MAX_ID}, not {value!r}")
    return value


def _scores(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise FieldError(name, f"must be an object of numbers, not {value!r}")
    return {k: _special(name, v) for k, v in cast(dict[str, Any], value).items()}


_ACTION_TYPES = ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64")
_WORDS = {"f": "numbers", "i": "integers", "u": "integers", "b": "true or false"}
_TEXT = _typed(str, word="a string")
_FLAG = _typed(bool, word="true or false")
_OBJECT = _typed(dict, word="an object")
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "tree": _TEXT, "id": _id, "parent": _id, "role": _one_of(ROLES), "actor": _TEXT,
    "level": _typed(int, word="an integer"), "trainable": _FLAG, "forced": _FLAG, "birth": _one_of(BIRTHS),
    "status": _one_of(STATUSES), "finish": _one_of((*FINISHES, None)), "usage": _TEXT, "scores": _scores,
    "state": lambda _, value: value, "state_key": _typed(str, type(None), word="a string"), "notes": _OBJECT,
    "task": _TEXT, "item": _TEXT, "tree_notes": _OBJECT,
}  # fmt: skip
