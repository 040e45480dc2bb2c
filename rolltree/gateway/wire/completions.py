"""OpenAI's completions: a text or token ids go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from rolltree.engine.protocol import Codec, Sample
from rolltree.gateway.ask import Ask
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import Draw, SessionReply
from rolltree.gateway.wire import fields
from rolltree.gateway.wire.chat import usage
from rolltree.gateway.wire.protocol import Body, Event, WireFormat, Written
from rolltree.gateway.wire.taken import BOOKKEEPING, NEUTRAL, SAMPLED, UNFORCED, Fields, only

PATH = "/v1/completions"
FIELDS = Fields(
    PATH,
    SAMPLED - {"tools", "tool_choice"}
    | {"prompt", "max_tokens", "stop", "n", "stream_options", "logprobs", "return_token_ids"},
    BOOKKEEPING,
    {
        **{name: one for name, one in NEUTRAL.items() if name != "parallel_tool_calls"},
        "response_format": only({"type": "text"}, why=UNFORCED),
        "echo": only(False, why="a client has its prompt"),
        "suffix": only("", why="the policy writes on"),
        "best_of": only(1, why="answers are not chosen among by a client"),
    },
)


def read(body: Body, limit: int) -> tuple[Ask, Draw]:
    """A prompt as text or ids, and how to sample."""
    told = body.get("prompt")
    draw = fields.draw(body, limit, top=fields.whole(body, "logprobs", 0, 0, 20))
    if isinstance(told, list) and len(cast(list[Any], told)) == 1 and isinstance(told[0], str | list):
        told = cast(Any, told[0])
    if isinstance(told, str):
        return Ask(text=told), draw
    if isinstance(told, list) and told and all(type(one) is int for one in cast(list[Any], told)):
        if not all(0 <= one < 2**31 for one in cast(list[int], told)):
            raise GatewayError("prompt has token ids that no policy has")
        return Ask(ids=tuple(cast(list[int], told))), draw
    raise GatewayError("prompt must be one text or one list of token ids; send other prompts as calls of their own")


def whole(written: Written, reply: SessionReply) -> Mapping[str, Any]:
    """One object with all choices."""
    choices: list[Mapping[str, Any]] = []
    for i, (sample, answer) in enumerate(zip(reply.samples, reply.answers, strict=True)):
        choice: dict[str, Any] = {"index": i, "text": answer.text, "finish_reason": answer.finish}
        choice["logprobs"] = _logprobs(written.codec, sample) if written.body.get("logprobs") is not None else None
        if written.body.get("return_token_ids"):
            choice |= {"token_ids": sample.actions.tolist(), "prompt_token_ids": reply.prompt.ids.tolist()}
        choices.append(choice)
    return {**_head(written), "choices": choices, "usage": usage(reply)}


def _logprobs(codec: Codec, sample: Sample) -> Mapping[str, Any]:
    tokens = [codec.decode([int(token)]) for token in sample.actions]
    top: list[Mapping[str, float]] | None = None
    if sample.top is not None:
        rows = zip(sample.top.ids.tolist(), sample.top.logp.tolist(), strict=True)
        top = [{codec.decode([i]): value for i, value in zip(ids, values, strict=True)} for ids, values in rows]
    return {"tokens": tokens, "token_logprobs": sample.logp.tolist(), "top_logprobs": top}


def _begin(written: Written) -> Iterator[Event]:
    yield from ()


def _text(written: Written, text: str) -> Iterator[Event]:
    yield _chunk(written, text)


def _finish(written: Written, reply: SessionReply, streamed: bool) -> Iterator[Event]:
    for i, (sample, answer) in enumerate(zip(reply.samples, reply.answers, strict=True)):
        event, chunk = _chunk(written, "" if streamed else answer.text, i, answer.finish)
        (choice,) = chunk["choices"]
        if written.body.get("logprobs") is not None:
            choice["logprobs"] = _logprobs(written.codec, sample)
        if written.body.get("return_token_ids"):
            choice |= {"token_ids": sample.actions.tolist(), "prompt_token_ids": reply.prompt.ids.tolist()}
        yield event, chunk
    options = written.body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield "", {**_head(written), "choices": [], "usage": usage(reply)}


def _chunk(written: Written, text: str, index: int = 0, finish: str | None = None) -> Event:
    choice = {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
    return "", {**_head(written), "choices": [choice]}


def _head(written: Written) -> dict[str, Any]:
    head = {"id": f"cmpl-{written.id}", "object": "text_completion"}
    return {**head, "created": written.created, "model": written.model}


COMPLETIONS = WireFormat(PATH, FIELDS, read, whole, _begin, _text, _finish, "[DONE]")
