"""What a call asks, in one form for all protocols: messages with tools, a text, or token ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from rolltree.gateway.errors import GatewayError

Message = Mapping[str, Any]
KEPT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")
"""Fields of a message that templates read."""
PARTS = 1000
"""Most parts of one content, and most calls of tools in one message."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Exactly one of `messages`, `text` and `ids` is given."""

    messages: tuple[Message, ...] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    text: str | None = None
    ids: tuple[int, ...] | None = None

    def names(self) -> Iterator[str]:
        """A name for each beginning of the messages (after the first, after the second, …) with these tools."""
        before = named("", list(self.tools))
        for message in self.messages or ():
            before = named(before, same(message))
            yield before


MESSAGE = 64
"""What a message costs to place, in characters of its text."""


def size_of(ask: Ask) -> int:
    """What a call costs to place, in characters."""
    texts = sum(len(str(one["content"])) + MESSAGE for one in ask.messages or ())
    return texts + MESSAGE * len(ask.tools) + len(ask.text or "") + len(ask.ids or ())


def named(before: str, told: Any) -> str:
    """The name of what has one, with something more behind it."""
    written = (before + _written(told)).encode("utf-8", "surrogatepass")
    return blake2b(written, digest_size=16).hexdigest()


def message(told: Any, where: str) -> dict[str, Any]:
    """A message as templates take it: content as one text, arguments of calls as objects."""
    if not isinstance(told, Mapping):
        raise GatewayError(f"{where} is no object; send {{'role': …, 'content': …}}")
    given = cast(Mapping[str, Any], told)
    role = given.get("role")
    if role == "developer":
        role = "system"
    if role not in ("system", "user", "assistant", "tool"):
        raise GatewayError(f"{where} has the role {role!r}; roles are system, developer, user, assistant and tool")
    for old in ("function_call", "audio"):
        if given.get(old):
            raise GatewayError(f"{where}.{old} is not read here; send tool_calls and text")
    out: dict[str, Any] = {"role": role, "content": content(given.get("content"), f"{where}.content")}
    for name in KEPT[3:]:
        if isinstance(given.get(name), str):
            out[name] = given[name]
    if given.get("tool_calls"):
        out["tool_calls"] = [_call(one, f"{where}.tool_calls[{i}]") for i, one in _listed(given["tool_calls"], where)]
    return out


def content(told: Any, where: str) -> str:
    """The text of a content: a text, nothing, or parts that are all text."""
    if told is None:
        return ""
    if isinstance(told, str):
        return told
    if not isinstance(told, Sequence):
        raise GatewayError(f"{where} is neither text nor a list of parts")
    if len(cast(Sequence[Any], told)) > PARTS:
        raise GatewayError(f"{where} has {len(cast(Sequence[Any], told)):,} parts, and at most {PARTS:,} are read")
    texts: list[str] = []
    for i, part in enumerate(cast(Sequence[Any], told)):
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            kind = cast(Mapping[str, Any], part).get("type") if isinstance(part, Mapping) else type(part).__name__
            raise GatewayError(f"{where}[{i}] is of type {kind!r}; this policy reads text only")
        texts.append(text)
    return "".join(texts)


def same(told: Message) -> dict[str, Any]:
    """What of a message tells it from others: neither blanks around it nor how arguments were written."""
    out: dict[str, Any] = {"role": told["role"], "content": str(told.get("content") or "").strip()}
    if told.get("tool_calls"):
        calls = cast(Sequence[Any], told["tool_calls"])
        out["tool_calls"] = [[one["id"], one["function"]["name"], one["function"]["arguments"]] for one in calls]
    for name in ("tool_call_id", "name"):
        if told.get(name):
            out[name] = told[name]
    return out


def _call(told: Any, where: str) -> dict[str, Any]:
    function = cast(Any, told).get("function") if isinstance(told, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(cast(Any, function).get("name"), str):
        raise GatewayError(f"{where} has no function with a name")
    arguments: Any = cast(Any, function).get("arguments", {})
    if isinstance(arguments, str):
        # A model may have written anything; the template shows what is no JSON as it is.
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments or "{}")
    id = str(cast(Any, told).get("id") or "")
    return {"id": id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _listed(told: Any, where: str) -> Iterator[tuple[int, Any]]:
    if not isinstance(told, Sequence) or isinstance(told, str):
        raise GatewayError(f"{where}: tool_calls is no list")
    if len(cast(Sequence[Any], told)) > PARTS:
        raise GatewayError(f"{where} has {len(cast(Sequence[Any], told)):,} calls of tools; at most {PARTS:,} are read")
    return enumerate(cast(Sequence[Any], told))


_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def _written(told: Any) -> str:
    return _ENCODER.encode(told)
