"""OpenAI's responses, without what they keep on a server: the client sends the whole conversation each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from rolltree.gateway.ask import Ask, content, message
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import Draw, SessionReply
from rolltree.gateway.wire import fields
from rolltree.gateway.wire.chat import sent
from rolltree.gateway.wire.protocol import Body, Event, WireFormat, Written, counted
from rolltree.gateway.wire.taken import BOOKKEEPING, NEUTRAL, SAMPLED, UNFORCED, Fields, Only, chosen, only

PATH = "/v1/responses"
WHOLE = "send the whole conversation as input"
FIELDS = Fields(
    PATH,
    SAMPLED | {"input", "instructions", "max_output_tokens"},
    {
        **BOOKKEEPING,
        "max_tool_calls": "it counts tools that run at OpenAI",
        "stream_options": "the usage is told always",
    },
    {
        "parallel_tool_calls": NEUTRAL["parallel_tool_calls"],
        "previous_response_id": only("", why=f"no response is kept, {WHOLE}"),
        "conversation": only("", why=f"no conversation is kept, {WHOLE}"),
        "background": only(False, why="a call is answered at once"),
        "truncation": only("disabled", why="what is too long is refused"),
        "top_logprobs": only(0, why="log-probs are told by chat completions"),
        "include": Only(
            "[] or reasoning.encrypted_content",
            "the rest is not known here",
            lambda told: isinstance(told, list) and set(map(str, told)) <= {"reasoning.encrypted_content"},
        ),
        "text": Only(
            '{"format": {"type": "text"}}',
            UNFORCED,
            lambda told: (
                isinstance(told, Mapping)
                and {k: v for k, v in cast(Mapping[str, Any], told).items() if v is not None}
                in ({}, {"format": {"type": "text"}})
            ),
        ),
        "reasoning": Only(
            "{}",
            "the policy thinks as its template has it",
            lambda told: isinstance(told, Mapping) and not any(cast(Mapping[str, Any], told).values()),
        ),
    },
)


def read(body: Body, limit: int) -> tuple[Ask, Draw]:
    """Input items as messages, and how to sample."""
    told, out = body.get("input"), list[dict[str, Any]]()
    if body.get("instructions"):
        out.append({"role": "system", "content": fields.text(body["instructions"], "instructions")})
    if isinstance(told, str):
        out.append({"role": "user", "content": told})
    else:
        for i, item in enumerate(fields.objects(told, "input")):
            _add(out, item, f"input[{i}]")
    if not out:
        raise GatewayError("input is empty; send a text or items", param="input")
    tools = list[Mapping[str, Any]]()
    for i, one in enumerate(fields.objects(body.get("tools"), "tools", fields.TOOLS)):
        if one.get("type") != "function":
            raise GatewayError(f"tools[{i}] is of type {one.get('type')!r:.80}; function is served", param="tools")
        tools.append(fields.tool(one.get("name"), one.get("description"), one.get("parameters"), f"tools[{i}]"))
    if not chosen(body.get("tool_choice"), bool(tools)):
        tools = []
    return Ask(tuple(out), tuple(tools)), fields.draw(body, limit, most="max_output_tokens")


def whole(written: Written, reply: SessionReply) -> Mapping[str, Any]:
    """One response object."""
    (answer,) = reply.answers[:1]
    told, output = sent(answer.message), list[Mapping[str, Any]]()
    if told.get("content") or not told.get("tool_calls"):
        output.append(_said(written, str(told.get("content") or "")))
    for i, one in enumerate(told.get("tool_calls") or ()):
        called = {"type": "function_call", "id": f"fc_{written.id}_{i}", "call_id": one["id"], "status": "completed"}
        output.append({**called, "name": one["function"]["name"], "arguments": one["function"]["arguments"]})
    asked, made = counted(reply)
    length = answer.finish == "length"
    return {
        **_head(written), "status": "incomplete" if length else "completed", "output": output,
        "incomplete_details": {"reason": "max_output_tokens"} if length else None,
        "usage": {
            "input_tokens": asked, "output_tokens": made, "total_tokens": asked + made,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip


def _add(out: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        out.append(message(item, where))
    elif kind == "function_call":
        named = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
        told = {"role": "assistant", "content": "", "tool_calls": [{"id": item.get("call_id"), "function": named}]}
        call = message(told, where)
        if out and out[-1]["role"] == "assistant":  # the calls of one turn are one message
            out[-1] = {**out[-1], "tool_calls": [*out[-1].get("tool_calls", ()), *call["tool_calls"]]}
        else:
            out.append(call)
    elif kind == "function_call_output":
        output = content(item.get("output"), f"{where}.output")
        out.append({"role": "tool", "content": output, "tool_call_id": str(item.get("call_id") or "")})
    elif kind != "reasoning":
        raise GatewayError(f"{where} is of type {kind!r}; message, function_call and function_call_output are read")


def _said(written: Written, text: str) -> Mapping[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    head = {"type": "message", "id": f"msg_{written.id}", "status": "completed", "role": "assistant"}
    return {**head, "content": [part]}


def _begin(written: Written) -> Iterator[Event]:
    started = {**_head(written), "status": "in_progress", "output": []}
    yield "response.created", {"type": "response.created", "response": started, "sequence_number": 0}


def _text(written: Written, text: str) -> Iterator[Event]:
    place = {"item_id": f"msg_{written.id}", "output_index": 0, "content_index": 0, "sequence_number": 1}
    yield "response.output_text.delta", {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}


def _finish(written: Written, reply: SessionReply, streamed: bool) -> Iterator[Event]:
    response = whole(written, reply)
    for i, item in enumerate(response["output"]):
        if item["type"] == "message" and not streamed and item["content"][0]["text"]:
            yield from _text(written, item["content"][0]["text"])
        done = {"type": "response.output_item.done", "output_index": i, "item": item, "sequence_number": 2 + i}
        yield "response.output_item.done", done
    end = f"response.{response['status']}"
    yield end, {"type": end, "response": response, "sequence_number": 2 + len(response["output"])}


def _head(written: Written) -> dict[str, Any]:
    return {
        "id": f"resp_{written.id}", "object": "response", "created_at": written.created, "model": written.model,
        "error": None, "instructions": written.body.get("instructions"), "parallel_tool_calls": True,
        "metadata": written.body.get("metadata") or {},
        "temperature": written.body.get("temperature"), "top_p": written.body.get("top_p"),
        "tool_choice": written.body.get("tool_choice") or "auto", "tools": written.body.get("tools") or [],
    }  # fmt: skip


RESPONSES = WireFormat(PATH, FIELDS, read, whole, _begin, _text, _finish)
