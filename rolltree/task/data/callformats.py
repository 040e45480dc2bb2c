"""How chat models write calls of tools: Hermes and Qwen in tags, Llama 3 as JSON; a turn may hold several."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rolltree.task.data.chat import Chat
from rolltree.task.items import TaskError

OPENS, CLOSES = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(rf"{OPENS}(.*?)(?:{CLOSES}|\Z)", re.DOTALL)
_TAG = "<|python_tag|>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a model wrote it; `wrong` says why it cannot be made."""

    name: str
    arguments: Mapping[str, Any]
    wrong: str = ""


ReadCalls = Callable[[str], Sequence[ToolCall]]
"""The calls in a turn, in order; none where the turn is an answer."""


def hermes(turn: str) -> Sequence[ToolCall]:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, one block for each call."""
    return [_parsed(found[1], closed=found[0].endswith(CLOSES)) for found in _BLOCK.finditer(turn)]


def llama(turn: str) -> Sequence[ToolCall]:
    """`{"name": …, "parameters": {…}}` and nothing else; several stand behind each other, or with `;` between them."""
    rest = turn.strip().removeprefix(_TAG).lstrip()
    if not rest.startswith("{"):
        return ()
    out: list[ToolCall] = []
    decoder = json.JSONDecoder()
    while rest:
        try:
            told, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError) as error:
            if not out and '"name"' not in rest:
                return ()
            return [*out, ToolCall("", {}, f"the call is not JSON: {error}")]
        if not out and not (isinstance(told, dict) and "name" in told):
            return ()
        out.append(_checked(told))
        rest = rest[end:].lstrip(" \n\t;,")
    return out


def format_of(chat: Chat) -> ReadCalls:
    """The format that a template writes calls in; one that is not read here is refused."""
    written = chat.call("rolltree_tool", {"rolltree_argument": "x"})
    if OPENS in written and '"arguments"' in written:
        return hermes
    if '"parameters"' in written and "rolltree_tool" in written:
        return llama
    # Some templates explain a format in the prompt and never write a call themselves.
    shown = chat.prompt("x")
    if OPENS in shown and '"arguments"' in shown:
        return hermes
    raise TaskError(
        f"the chat template of {chat.name} writes calls of tools in a way that is not read here; models in the format "
        "of Hermes and Qwen (<tool_call> with JSON) or of Llama 3 (JSON) can use tools; choose one, or give a template "
        "in such a format with --chat-template FILE"
    )


def _parsed(text: str, *, closed: bool) -> ToolCall:
    try:
        told = json.loads(text.removesuffix(CLOSES))
    except json.JSONDecodeError as error:
        unclosed = "" if closed else f"{CLOSES} is missing, and "
        return ToolCall("", {}, f"{unclosed}the call is not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return ToolCall("", {}, f"the call cannot be read: {error}")
    return _checked(told)


def _checked(told: Any) -> ToolCall:
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        return ToolCall("", {}, 'a call must be an object with "name" and "arguments"')
    asked = cast(dict[str, Any], told)
    arguments = asked.get("arguments", asked.get("parameters")) or {}
    if not isinstance(arguments, dict):
        return ToolCall(asked["name"], {}, '"arguments" must be an object')
    return ToolCall(asked["name"], cast(dict[str, Any], arguments))
