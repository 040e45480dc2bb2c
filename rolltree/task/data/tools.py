"""Python functions as tools: what a template is told of them, and how they are called."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from rolltree.registry import raised
from rolltree.task.foreign.parts import locate
from rolltree.task.foreign.threads import awaited
from rolltree.task.items import TaskError

KINDS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
                            tuple: "array", dict: "object", Mapping: "object", Sequence: "array"}  # fmt: skip


class ToolFailedError(RuntimeError):
    """A call that failed, in words for the policy."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its schema as templates take it, and the call, which may block; what it raises, the policy is told."""

    name: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], str]


def tool(address: str) -> Tool:
    """A function as a tool, by its address (file.py:function or module:function).

    Its docstring says what it is for; parameters and their kinds are read from its signature.
    """
    function = locate(address, "the tool")
    if not callable(function) or isinstance(function, type):
        raise TaskError(f"the tool {address} is no function but {type(function).__name__}")
    name = str(getattr(function, "__name__", address.rpartition(":")[2]))
    about = inspect.cleandoc(function.__doc__ or "")
    if not about:
        raise TaskError(f"the tool {address} has no docstring, so no model could know what it is for; write one")
    schema = {"type": "function", "function": {
        "name": name, "description": about, "parameters": parameters(function, address)}}  # fmt: skip

    def call(arguments: Mapping[str, Any]) -> str:
        told = function(**arguments)
        if inspect.isawaitable(told):
            told = awaited(cast(Any, told))
        return as_text(told)

    return Tool(name, schema, call)


def parameters(function: Callable[..., Any], address: str) -> dict[str, Any]:
    """The JSON schema of a function's parameters."""
    try:
        hints = get_type_hints(function)
        known = inspect.signature(function).parameters.values()
    except Exception as error:  # an annotation is any code of somebody's
        raise TaskError(
            f"the signature of the tool {address} cannot be read: {raised(error)}; mend its annotations"
        ) from None
    listed = [p for p in known if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if any(p.kind is p.POSITIONAL_ONLY for p in listed):
        raise TaskError(f"the tool {address} has positional parameters only, and calls name their arguments")
    return {
        "type": "object",
        "properties": {p.name: kind(hints.get(p.name, Any)) for p in listed},
        "required": [p.name for p in listed if p.default is p.empty],
    }


def kind(hint: Any) -> dict[str, Any]:
    """A type hint as a JSON schema; what JSON has no word for is left open."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        some = [kind(one) for one in inside if one is not type(None)]
        return some[0] if len(some) == 1 else {"anyOf": some}
    if origin is Literal:
        return {"enum": list(inside)}
    named = KINDS.get(origin or hint)
    if named == "array" and inside:
        return {"type": "array", "items": kind(inside[0])}
    return {} if named is None else {"type": named}


def as_text(told: Any) -> str:
    """What a tool answered, as a text."""
    return told if isinstance(told, str) else json.dumps(told, default=str, ensure_ascii=False)
