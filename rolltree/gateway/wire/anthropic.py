"""Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rolltree.gateway.ask import Ask, content, message
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import Draw, SessionReply
from rolltree.gateway.wire import fields
from rolltree.gateway.wire.protocol import Body, Event, WireFormat, Written, counted
from rolltree.gateway.wire.taken import SAMPLED, UNFORCED, Fields, Only, chosen, only

PATH = "/v1/messages"
FIELDS = Fields(
    PATH,
    SAMPLED | {"messages", "system", "max_tokens", "stop_sequences"},
    {
        "metadata": "a call of an agent may name its state in it",
        "service_tier": "there is one",
        "cache_control": "prefixes are found by themselves",
    },
    {
        "thinking": Only(
            '{"type": "disabled"}',
            "the policy thinks as its template has it",
            lambda told: isinstance(told, Mapping) and cast(Mapping[str, Any], told).get("type") == "disabled",
        ),
        "mcp_servers": only([], why="no tools run here"),
        "output_config": only({}, why=UNFORCED),
    },
)

Block = Mapping[str, Any]


def read(body: Body, limit: int) -> tuple[Ask, Draw]:
    """Blocks as messages, and how to sample."""
    out: list[dict[str, Any]] = []
    if body.get("system"):
        out.append({"role": "system", "content": content(body["system"], "system")})
    told = fields.objects(body.get("messages"), "messages")
    if not told:
        raise GatewayError("messages is empty; send at least one", param="messages")
    for i, one in enumerate(told):
        out += _messages(one, f"messages[{i}]")
    tools = list[Mapping[str, Any]]()
    for i, one in enumerate(fields.objects(body.get("tools"), "tools", fields.TOOLS)):
        if one.get("type") not in (None, "custom"):
            raise GatewayError(f"tools[{i}] is of type {one['type']!r:.80}; custom is served", param="tools")
        tools.append(fields.tool(one.get("name"), one.get("description", ""), one.get("input_schema"), f"tools[{i}]"))
    if not chosen(body.get("tool_choice"), bool(tools)):
        tools = []
    return Ask(tuple(out), tuple(tools)), fields.draw(body, limit, stop="stop_sequences")


def whole(written: Written, reply: SessionReply) -> Mapping[str, Any]:
    """One message object."""
    (answer,) = reply.answers[:1]
    told, blocks = answer.message, list[Block]()
    if told.get("content") or not told.get("tool_calls"):
        blocks.append({"type": "text", "text": told.get("content") or ""})
    for one in told.get("tool_calls") or ():
        called = one["function"]
        blocks.append({"type": "tool_use", "id": one["id"], "name": called["name"], "input": called["arguments"]})
    asked, made = counted(reply)
    stopped = answer.stopped_by if answer.stopped_by in _stops(written) else None
    return {
        **_head(written), "content": blocks, "stop_reason": _reason(answer.finish, stopped), "stop_sequence": stopped,
        "usage": {"input_tokens": asked, "output_tokens": made},
    }  # fmt: skip


def _messages(one: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """A message of blocks as messages: results of tools are messages of their own."""
    told = one.get("content")
    if not isinstance(told, list):
        return [message(one, where)]
    texts, calls, out = list[Any](), list[Any](), list[dict[str, Any]]()
    for i, block in enumerate(fields.objects(told, f"{where}.content")):
        kind = block.get("type")
        if kind == "tool_use":
            named = {"name": block.get("name"), "arguments": block.get("input") or {}}
            calls.append({"id": block.get("id"), "function": named})
        elif kind == "tool_result":
            said = content(block.get("content"), f"{where}.content[{i}].content")
            out.append({"role": "tool", "content": said, "tool_call_id": str(block.get("tool_use_id") or "")})
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(block)
    if texts or calls or not out:
        out.append(message({"role": one.get("role"), "content": texts, "tool_calls": calls or None}, where))
    return out


def _begin(written: Written) -> Iterator[Event]:
    usage = {"input_tokens": 0, "output_tokens": 0}
    started = {**_head(written), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield "message_start", {"type": "message_start", "message": started}
    block = {"type": "text", "text": ""}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}


def _text(written: Written, text: str) -> Iterator[Event]:
    delta = {"type": "text_delta", "text": text}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}


def _finish(written: Written, reply: SessionReply, streamed: bool) -> Iterator[Event]:
    made = whole(written, reply)
    if not streamed:
        for block in made["content"]:
            if block["type"] == "text" and block["text"]:
                yield from _text(written, block["text"])
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    for i, block in enumerate((b for b in made["content"] if b["type"] == "tool_use"), 1):
        begun = {**block, "input": {}}
        yield "content_block_start", {"type": "content_block_start", "index": i, "content_block": begun}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_delta", {"type": "content_block_delta", "index": i, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": i}
    delta = {"stop_reason": made["stop_reason"], "stop_sequence": made["stop_sequence"]}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": made["usage"]}
    yield "message_stop", {"type": "message_stop"}


def _stops(written: Written) -> tuple[str, ...]:
    return tuple(written.body.get("stop_sequences") or ())


def _reason(finish: str, stopped: str | None) -> str:
    if stopped is not None:
        return "stop_sequence"
    return {"length": "max_tokens", "tool_calls": "tool_use"}.get(finish, "end_turn")


def _head(written: Written) -> dict[str, Any]:
    return {"id": f"msg_{written.id}", "type": "message", "role": "assistant", "model": written.model}


ANTHROPIC = WireFormat(PATH, FIELDS, read, whole, _begin, _text, _finish)
