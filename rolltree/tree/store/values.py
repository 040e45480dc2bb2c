"""Values as JSON without loss and without danger: what states, notes and event numbers are stored as.

Plain JSON values stand for themselves. What JSON lacks is written as an object with one `$` key: bytes, tuples, sets,
numbers that are not finite, arrays, maps with other keys, and objects of classes registered here by name. Reading
constructs nothing else and imports nothing, so a file from a stranger is as harmless as its text.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from rolltree.tree.node import TreeError

# Reading JSON that others wrote: whatever Python cannot read is one kind of error.


def read_json(text: str | bytes, **how: Any) -> Any:
    """As `json.loads`, but nesting too deep for Python is a ValueError too, as numbers too long for it are already."""
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None


def why_not(error: ValueError) -> str:
    """What is wrong with a text that could not be read, in a few words."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


T = TypeVar("T")
States = Literal["keep", "drop"]
"""Whether environment states are stored with their nodes; their keys always are."""


class StoreError(TreeError):
    """Something cannot be written or read back; the message names the file or value and the way out."""


class ValueCodec(NamedTuple):
    """How objects of one class become a storable value and come back."""

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_ATOMS = frozenset({type(None), bool, str, int})
_TEXT = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_BY_TYPE: dict[type, ValueCodec] = {}
_BY_NAME: dict[str, ValueCodec] = {}


def register(cls: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Store objects of a class as `encode(object)` under a name. Registering the same name again replaces it."""
    _BY_TYPE[cls] = _BY_NAME[name] = ValueCodec(name, encode, decode)


def storable(cls: type[T]) -> type[T]:
    """Decorate a dataclass so that its objects can stand in states, notes and event numbers of a stored forest."""
    if not dataclasses.is_dataclass(cls):
        raise StoreError(f"storable works on dataclasses; register {cls.__name__} with a pair of functions instead")
    names = [f.name for f in dataclasses.fields(cls) if f.init]
    register(
        cls,
        f"{cls.__module__}.{cls.__qualname__}",
        lambda value: [getattr(value, n) for n in names],
        lambda fields: cls(**dict(zip(names, fields, strict=True))),
    )
    return cls


def dumps(value: Any) -> str:
    """A value as one line of JSON that `loads` turns back into an equal value."""
    return _TEXT(value if type(value) in _ATOMS else encode(value))


def loads(text: str) -> Any:
    """The value that `dumps` wrote."""
    try:
        return _VALUE(text)
    except StoreError:
        raise
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON: {error}") from None


def encode(value: Any) -> Any:
    """The JSON form of a value."""
    if type(value) in _ATOMS:
        return value
    if type(value) in _BY_TYPE:
        codec = _BY_TYPE[type(value)]
        return {"$object": [codec.name, encode(codec.encode(value))]}
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain(value)
    if isinstance(value, str) or (isinstance(value, np.generic) and value.dtype.kind in "biuf"):
        # A text that knows more is kept as what it writes: a prompt in a chat template as its question.
        return f"{value}" if isinstance(value, str) else encode(value.item())
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        array = np.ascontiguousarray(value)
        return {"$array": [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}
    if isinstance(value, Mapping):
        return _mapping(cast(Mapping[Any, Any], value))
    raise StoreError(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be stored: decorate its class with "
        "rolltree.tree.store.values.storable, or register it there, or keep bytes or plain JSON values instead"
    )


def revive(mapping: dict[str, Any]) -> Any:
    """What a JSON object whose members are values already stands for; a hook for `json.loads`."""
    if len(mapping) != 1:
        return mapping
    ((tag, inner),) = mapping.items()
    if not tag.startswith("$"):
        return mapping
    try:
        return _TAGS[tag](inner)
    except StoreError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the stored value under {tag!r} makes no sense ({error!r})") from None


def _float(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": str(value)}


def _mapping(value: Mapping[Any, Any]) -> Any:
    out: dict[str, Any] = {}
    for k, v in value.items():
        if type(k) is not str or k.startswith("$"):
            return {"$map": [[encode(k), encode(v)] for k, v in value.items()]}
        out[k] = v if type(v) in _ATOMS else encode(v)
    return out


def _list(value: Iterable[Any]) -> list[Any]:
    return [v if type(v) in _ATOMS else encode(v) for v in value]


def _unordered(tag: str) -> Callable[[Any], Any]:
    # Sorted by their JSON text so that equal sets are stored alike.
    return lambda value: {tag: sorted((encode(v) for v in value), key=json.dumps)}


def _array(inner: Any) -> Any:
    dtype, shape, data = inner
    return np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape).copy()


def _object(inner: Any) -> Any:
    name, value = inner
    if name not in _BY_NAME:
        raise StoreError(f"the file holds a {name}, which is not registered: import the module that defines it first")
    return _BY_NAME[name].decode(value)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    float: _float,
    dict: _mapping,
    list: _list,
    tuple: lambda value: {"$tuple": _list(value)},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    set: _unordered("$set"),
    frozenset: _unordered("$frozenset"),
}

_TAGS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$tuple": tuple,
    "$bytes": lambda inner: base64.b64decode(inner, validate=True),
    "$set": set,
    "$frozenset": frozenset,
    "$map": dict,
    "$array": _array,
    "$object": _object,
}
_VALUE = json.JSONDecoder(object_hook=revive).decode
