"""OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rolltree.engine.protocol import Codec, Sample
from rolltree.gateway.ask import Ask, message
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import Draw, SessionReply
from rolltree.gateway.wire import fields
from rolltree.gateway.wire.protocol import Body, Event, WireFormat, Written, counted
from rolltree.gateway.wire.taken import BOOKKEEPING, NEUTRAL, SAMPLED, UNFORCED, Fields, chosen, only

PATH = "/v1/chat/completions"
FIELDS = Fields(
    PATH,
    SAMPLED
    | {"messages", "max_tokens", "max_completion_tokens", "stop", "n", "stream_options", "logprobs", "top_logprobs"}
    | {"return_token_ids"},
    {**BOOKKEEPING, "prediction": "it makes answers faster, not others"},
    {
        **NEUTRAL,
        "response_format": only({"type": "text"}, why=UNFORCED),
        "modalities": only(["text"], why="the policy writes text"),
        "functions": only([], why="that is an older protocol, whose successor is tools"),
        "function_call": only("auto", "none", why="that is an older protocol, whose successor is tool_choice"),
    },
)


def read(body: Body, limit: int) -> tuple[Ask, Draw]:
    """Messages, tools and how to sample."""
    told = fields.objects(fields.listed(body.get("messages"), "messages"), "messages")
    if not told:
        raise GatewayError("messages is empty; send at least one", param="messages")
    messages = tuple(message(one, f"messages[{i}]") for i, one in enumerate(told))
    tools = tuple(tools_of(body))
    if not chosen(body.get("tool_choice"), bool(tools)):
        tools = ()
    top = fields.whole(body, "top_logprobs", 0, 0, 20)
    if top and not fields.flag(body, "logprobs"):
        raise GatewayError(f"top_logprobs is {top} without logprobs; send logprobs as true", param="top_logprobs")
    most = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return Ask(messages, tools), fields.draw(body, limit, most=most, top=top)


def tools_of(body: Body) -> Iterator[Mapping[str, Any]]:
    """The functions that the policy is shown."""
    for i, one in enumerate(fields.objects(body.get("tools"), "tools", fields.TOOLS)):
        function: Any = one.get("function")
        if one.get("type", "function") != "function" or not isinstance(function, Mapping):
            raise GatewayError(f"tools[{i}] is of type {one.get('type')!r:.80}; function is served", param="tools")
        told = cast(Mapping[str, Any], function)
        yield fields.tool(told.get("name"), told.get("description"), told.get("parameters"), f"tools[{i}]")


def whole(written: Written, reply: SessionReply) -> Mapping[str, Any]:
    """One object with all choices."""
    choices: list[Mapping[str, Any]] = []
    for i, (sample, answer) in enumerate(zip(reply.samples, reply.answers, strict=True)):
        told = sent(answer.message)
        choice: dict[str, Any] = {"index": i, "message": told, "finish_reason": answer.finish}
        choice["logprobs"] = {"content": logprobs(written.codec, sample)} if written.body.get("logprobs") else None
        if written.body.get("return_token_ids"):
            choice["token_ids"] = sample.actions.tolist()
        choices.append(choice)
    out = {**_head(written, "chat.completion"), "choices": choices, "usage": usage(reply)}
    if written.body.get("return_token_ids"):
        out["prompt_token_ids"] = reply.prompt.ids.tolist()
    return out


def sent(told: Mapping[str, Any]) -> dict[str, Any]:
    """A message as clients get it: arguments of calls as text."""
    out = dict(told)
    if out.get("tool_calls"):
        out["content"] = out["content"] or None
        out["tool_calls"] = [
            {**one, "function": {**one["function"], "arguments": json.dumps(one["function"]["arguments"])}}
            for one in out["tool_calls"]
        ]
    return out


def logprobs(codec: Codec, sample: Sample) -> list[Mapping[str, Any]]:
    """Log-probs of the tokens under the policy, and of the likeliest others where asked for."""
    out: list[Mapping[str, Any]] = []
    for i, (token, logp) in enumerate(zip(sample.actions.tolist(), sample.logp.tolist(), strict=True)):
        others = zip(sample.top.ids[i].tolist(), sample.top.logp[i].tolist(), strict=True) if sample.top else ()
        top = [_token(codec, other, value) for other, value in others]
        out.append({**_token(codec, token, logp), "top_logprobs": top})
    return out


def usage(reply: SessionReply) -> Mapping[str, int]:
    """Tokens in and out."""
    asked, made = counted(reply)
    return {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}


def _begin(written: Written) -> Iterator[Event]:
    yield _delta(written, {"role": "assistant", "content": ""})


def _text(written: Written, text: str) -> Iterator[Event]:
    yield _delta(written, {"content": text})


def _finish(written: Written, reply: SessionReply, streamed: bool) -> Iterator[Event]:
    for i, (sample, answer) in enumerate(zip(reply.samples, reply.answers, strict=True)):
        told = sent(answer.message)
        if not streamed and told.get("content"):
            yield _delta(written, {"content": told["content"]}, i)
        if told.get("tool_calls"):
            yield _delta(written, {"tool_calls": [{"index": k, **c} for k, c in enumerate(told["tool_calls"])]}, i)
        shown = {"content": logprobs(written.codec, sample)} if written.body.get("logprobs") else None
        event, chunk = _delta(written, {}, i, answer.finish, shown)
        if written.body.get("return_token_ids"):
            (choice,) = chunk["choices"]
            choice["token_ids"] = sample.actions.tolist()
            chunk = {**chunk, "prompt_token_ids": reply.prompt.ids.tolist()}
        yield event, chunk
    options = written.body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield "", {**_head(written, "chat.completion.chunk"), "choices": [], "usage": usage(reply)}


def _delta(
    written: Written, delta: Mapping[str, Any], index: int = 0, finish: str | None = None, logprobs: Any = None
) -> Event:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    return "", {**_head(written, "chat.completion.chunk"), "choices": [choice]}


def _head(written: Written, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{written.id}", "object": kind, "created": written.created, "model": written.model}


def _token(codec: Codec, token: int, logp: float) -> Mapping[str, Any]:
    text = codec.decode([token])
    return {"token": text, "logprob": logp, "bytes": list(text.encode()), "id": token}


CHAT = WireFormat(PATH, FIELDS, read, whole, _begin, _text, _finish, "[DONE]")
