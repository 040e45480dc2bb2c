"""Every field of a call is honoured, changes nothing by its nature, or is refused with the way out."""

import asyncio
import json
from pathlib import Path

import pytest

from rolltree.gateway.errors import GatewayError
from rolltree.gateway.wire import WIRES, understood
from rolltree.gateway.wire.taken import table
from tests.gateway.test_requests import wire

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
SAID = [{"role": "user", "content": "hi"}]
GOOD = {
    "/v1/chat/completions": {"messages": SAID, "tools": [TOOL]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi", "tools": [{"type": "function", "name": "add"}]},
    "/v1/messages": {"messages": SAID, "tools": [{"name": "add", "input_schema": {}}]},
}
BY_PATH = {one.path: one for one in WIRES}
CHAT, COMPLETIONS, RESPONSES, MESSAGES = BY_PATH.values()


def read(one, ignored=(), **more):
    return understood(one, {**GOOD[one.path], **more}, 10, ignored)


@pytest.mark.parametrize("one", WIRES, ids=BY_PATH)
def test_a_field_that_nobody_knows_is_refused_by_name_with_the_nearest_and_the_way_out(one):
    with pytest.raises(
        GatewayError, match=r"'temperatur' is not served at .*did you mean 'temperature'\?.*--ignore"
    ) as e:
        read(one, temperatur=0.5)
    assert (e.value.status, e.value.param, e.value.code) == (400, "temperatur", "unsupported_parameter")
    read(one, temperatur=None)
    body, *_ = read(one, ["temperatur"], temperatur=0.5)
    assert "temperatur" not in body


@pytest.mark.parametrize("one", WIRES, ids=BY_PATH)
def test_what_changes_nothing_is_taken_and_each_limited_field_refuses_all_but_its_values(one):
    for name in one.fields.idle:
        read(one, **{name: {"a": 1}})
    for name in one.fields.limited:
        with pytest.raises(GatewayError, match=f"{name} is .*so it takes"):
            read(one, **{name: {"type": "something else"}})
        read(one, [name], **{name: {"type": "something else"}})


@pytest.mark.parametrize(("one", "name", "good", "bad"), [
    (CHAT, "response_format", {"type": "text"}, {"type": "json_object"}),
    (CHAT, "response_format", {"type": "text"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}),
    (CHAT, "parallel_tool_calls", True, False),
    (CHAT, "frequency_penalty", 0, 0.5),
    (CHAT, "logit_bias", {}, {"5": 100}),
    (CHAT, "reasoning_effort", None, "high"),
    (CHAT, "guided_json", None, {}),
    (COMPLETIONS, "echo", False, True),
    (COMPLETIONS, "best_of", 1, 4),
    (COMPLETIONS, "tools", None, [TOOL]),
    (RESPONSES, "text", {"format": {"type": "text"}, "verbosity": None}, {"format": {"type": "json_object"}}),
    (RESPONSES, "previous_response_id", None, "resp_1"),
    (RESPONSES, "include", ["reasoning.encrypted_content"], ["message.output_text.logprobs"]),
    (RESPONSES, "reasoning", {"effort": None}, {"effort": "high"}),
    (RESPONSES, "truncation", "disabled", "auto"),
    (RESPONSES, "n", None, 2),
    (RESPONSES, "tools", [{"type": "function", "name": "f"}], [{"type": "web_search"}]),
    (MESSAGES, "thinking", {"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}),
    (MESSAGES, "tools", [{"type": "custom", "name": "f"}], [{"type": "bash_20250124", "name": "bash"}]),
    (CHAT, "tools", [], [{"type": "custom", "custom": {"name": "f"}}]),
    (CHAT, "tools", [TOOL], [{"type": "function", "function": {"name": ""}}]),
    (CHAT, "stream", False, "yes"),
    (CHAT, "top_logprobs", 0, 3),
    (CHAT, "messages", SAID, [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]),
])  # fmt: skip
def test_what_cannot_be_kept_is_refused_instead_of_answered_otherwise(one, name, good, bad):
    read(one, **{name: good})
    with pytest.raises(GatewayError):
        read(one, **{name: bad})


@pytest.mark.parametrize(("one", "auto", "none", "forced"), [
    (CHAT, "auto", "none", ["required", {"type": "function", "function": {"name": "add"}}, 7, {"type": "custom"}]),
    (RESPONSES, "auto", "none", ["required", {"type": "function", "name": "add"}, {"type": "allowed_tools"}]),
    (MESSAGES, {"type": "auto"}, {"type": "none"},
     [{"type": "any"}, {"type": "tool", "name": "add"}, {"type": "auto", "disable_parallel_tool_use": True}]),
], ids=["chat", "responses", "messages"])  # fmt: skip
def test_the_choice_of_tools_is_the_policys_or_nobodys(one, auto, none, forced):
    assert [tool["function"]["name"] for tool in read(one, tool_choice=auto)[1].tools] == ["add"]
    assert read(one, tool_choice=none)[1].tools == ()
    for choice in forced:
        with pytest.raises(GatewayError, match="tool_choice"):
            read(one, tool_choice=choice)
        assert read(one, ["tool_choice"], tool_choice=choice)[1].tools


def test_a_server_told_to_ignore_a_field_serves_the_call_as_without_it():
    async def work():
        body = {"messages": SAID, "max_tokens": 5, "seed": 1, "response_format": {"type": "json_object"}}
        async with wire() as w:
            error = await w.refused(400, "response_format", body=json.dumps(body).encode())
            assert error["param"] == "response_format"
            assert not w.gateway.sessions
        async with wire(ignored=frozenset({"response_format", "seed"})) as w:
            assert (await w.ask(body=json.dumps(body).encode()))[0] == 200

    asyncio.run(work())


@pytest.mark.parametrize(("path", "asked"), [("/v1/chat/completions", {"messages": SAID, "logprobs": True}),
                                             ("/v1/completions", {"prompt": "hi", "logprobs": 2})])  # fmt: skip
def test_a_stream_tells_the_tokens_and_logprobs_that_were_asked_for(path, asked):
    async def work():
        async with wire() as w:
            body = {**asked, "max_tokens": 5, "seed": 1, "return_token_ids": True}
            whole = (await w.ask(path, json.dumps(body).encode()))[1]
            sent = json.dumps({**body, "stream": True}).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
            _, told = await w.raw(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
            events = [json.loads(line[6:]) for line in told.decode().splitlines() if line.startswith("data: {")]
            (last,) = [c for event in events for c in event["choices"] if c["finish_reason"]]
            (choice,) = whole["choices"]
            assert last["token_ids"] == choice["token_ids"]
            assert last["logprobs"] == choice["logprobs"]

    asyncio.run(work())


def test_the_documentation_prints_the_table_of_fields():
    page = (Path(__file__).resolve().parents[2] / "docs/howto/agents.md").read_text()
    written = page.partition("<!-- fields -->\n")[2].partition("\n<!-- /fields -->")[0]
    assert written == table([one.fields for one in WIRES]), "python -m rolltree.gateway.wire prints it"
