"""The clients of OpenAI and Anthropic against a served gateway: what they send is served, and refusals are theirs."""

import asyncio
import subprocess
import textwrap

import pytest

from rolltree.gateway.gateway import Gateway
from rolltree.gateway.server import serving
from tests.gateway.clients.test_clients import PYTHON
from tests.gateway.policies import letters

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="make test-agents makes their environment")
OPENAI = """
    import openai
    client = openai.OpenAI(base_url=base + "/v1", api_key="k:openai", max_retries=0)
    said = [{"role": "user", "content": "hi"}]
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "strict": True}}]
    plain = dict(model="tiny", messages=said, max_completion_tokens=5)
    made = client.chat.completions.create(**plain, user="me", metadata={"a": "b"}, store=False, service_tier="auto",
        seed=1, n=2, logprobs=True, top_logprobs=2, parallel_tool_calls=True, tools=tools, tool_choice="auto",
        response_format={"type": "text"}, stop=["z"], temperature=0.5, top_p=0.9, frequency_penalty=0.0)
    assert len(made.choices) == 2 and len(made.choices[0].logprobs.content[0].top_logprobs) == 2
    *_, last = client.chat.completions.create(**plain, stream=True, stream_options={"include_usage": True})
    assert last.usage.completion_tokens > 0
    for field, value in (("tool_choice", "required"), ("response_format", {"type": "json_object"}),
                         ("reasoning_effort", "high"), ("presence_penalty", 1.0), ("parallel_tool_calls", False)):
        try:
            client.chat.completions.create(**plain, tools=tools, **{field: value})
        except openai.BadRequestError as error:
            assert error.param == field and error.code == "unsupported_parameter", error
        else:
            raise AssertionError(field)
    try:
        client.chat.completions.create(**{**plain, "model": "gpt-5"})
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and "'tiny'" in str(error)
    else:
        raise AssertionError("gpt-5")
    assert client.models.retrieve("tiny").id == "tiny" and [m.id for m in client.models.list()] == ["tiny"]
    made = client.completions.create(model="tiny", prompt="hi", max_tokens=5, logprobs=2, echo=False, user="me")
    assert made.choices[0].logprobs.tokens
    made = client.responses.create(model="tiny", input="hi", max_output_tokens=5, store=True, metadata={"a": "b"},
        include=[], truncation="disabled", parallel_tool_calls=True, user="me")
    assert made.metadata == {"a": "b"}
    try:
        client.responses.create(model="tiny", input="hi", text={"format": {"type": "json_object"}})
    except openai.BadRequestError as error:
        assert error.param == "text"
    else:
        raise AssertionError("text")
"""
ANTHROPIC = """
    import anthropic
    client = anthropic.Anthropic(base_url=base, api_key="k:anthropic", max_retries=0)
    plain = dict(model="tiny", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
    tools = [{"name": "add", "input_schema": {"type": "object"}}]
    made = client.messages.create(**plain, metadata={"user_id": "me"}, service_tier="auto", tools=tools,
        tool_choice={"type": "auto"}, thinking={"type": "disabled"}, stop_sequences=["z"], system="be brief")
    assert made.usage.output_tokens > 0
    with client.messages.stream(**plain) as stream:
        assert stream.get_final_message().stop_reason
    for more in ({"tools": tools, "tool_choice": {"type": "any"}},
                 {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
        try:
            client.messages.create(**plain, **more)
        except anthropic.BadRequestError as error:
            assert error.body["error"]["param"] in more, error
        else:
            raise AssertionError(more)
    try:
        client.messages.create(**{**plain, "model": "claude-5"})
    except anthropic.NotFoundError as error:
        assert "'tiny'" in str(error)
    else:
        raise AssertionError("claude-5")
"""


@pytest.mark.parametrize("script", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_what_the_clients_send_is_served_or_refused_in_their_own_errors(script):
    async def work():
        engine = letters()
        async with serving(Gateway(engine, "tiny")) as (address, _):
            told = f"base = {address!r}\n{textwrap.dedent(script)}"
            done = await asyncio.to_thread(
                subprocess.run, [PYTHON, "-c", told], capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr
        await engine.close()

    asyncio.run(work())
