"""A policy that cannot use tools is told from one that can before a token is sampled."""

import asyncio
import json

import pytest

from rolltree.gateway.agents.task import AgentTask
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.gateway import Gateway
from rolltree.generate.independent import Independent
from rolltree.task.items import TaskError
from rolltree.task.protocol import spoken_by
from tests.gateway import agents, chats
from tests.gateway.policies import letters
from tests.gateway.test_agents import NATIVE, grown
from tests.gateway.test_requests import wire
from tests.task.data.toy import CHATML

STRANGE = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + CHATML.replace(
    "{{ m.content }}", "{{ m.content }}{% for c in m.tool_calls or [] %}<call={{ c.function.name }}>{% endfor %}"
)
SILENT = '{% for t in tools or [] %}Call with <tool_call> and "arguments": {{ t | tojson }}{% endfor %}' + CHATML
WAYS = {"drops the tools (add": CHATML, "writes calls of tools in a way that is not read here": STRANGE}
ASKED = {"messages": [{"role": "user", "content": "hi"}], "tools": [agents.TOOL]}


@pytest.fixture(params=WAYS)
def unfit(request, monkeypatch):
    """What is told of a template that cannot be shown tools, or whose calls are not read; `letters` speaks it."""
    monkeypatch.setitem(chats.TEMPLATES, "unfit", WAYS[request.param])
    return request.param


def test_the_first_call_that_names_tools_is_refused_and_nothing_is_sampled(unfit):
    async def work():
        async with wire() as w:
            w.gateway.template = Gateway(letters("unfit")).template
            for stream in (False, True):
                body = json.dumps({**ASKED, "stream": stream}).encode()
                error = await w.refused(400, unfit, body=body)
                assert "--chat-template" in error["message"]
                assert error["param"] == "tools"
            (session,) = w.gateway.sessions.values()
            assert not session.record.calls
            assert not session.spent
            body = json.dumps({**ASKED, "tool_choice": "none", "max_tokens": 3}).encode()
            assert (await w.ask(body=body))[0] == 200

    asyncio.run(work())


class Refusing:
    """An engine that must not be asked for a token."""

    def __init__(self, engine):
        self.codec, self.capabilities = engine.codec, engine.capabilities

    def submit(self, request):
        raise AssertionError("a token was to be sampled")


async def with_tools(item):
    return (await agents.ask(item, ASKED["messages"], tools=ASKED["tools"]))["content"]


async def forcing(item):
    return (await agents.ask(item, ASKED["messages"], tools=ASKED["tools"], tool_choice="required"))["content"]


async def swallowing(item):
    try:
        await forcing(item)
    except RuntimeError:
        return "nothing"


def test_an_agents_first_call_stops_the_run_before_a_token_is_decoded(unfit):
    engine = Refusing(letters("unfit"))
    with pytest.raises(GatewayError) as error:
        grown(engine, spoken_by(AgentTask(with_tools, task=NATIVE), engine.codec), Independent(2))
    assert unfit in str(error.value)
    assert "--chat-template" in str(error.value)
    assert "verifier" not in str(error.value)


@pytest.mark.parametrize("agent", [forcing, swallowing])
def test_an_agent_whose_first_call_is_refused_stops_the_run_with_that_sentence(agent):
    engine = Refusing(letters())
    with pytest.raises(TaskError, match=r"call of the agent was refused: tool_choice .*ignore=tool_choice"):
        grown(engine, spoken_by(AgentTask(agent, task=NATIVE), engine.codec), Independent(2))


def test_an_agent_may_have_a_field_ignored():
    task = spoken_by(AgentTask(forcing, task=NATIVE, ignore="tool_choice"), letters().codec)
    trees = list(grown(letters(), task, Independent(1), items=1))
    assert [leaf.status for leaf in trees[0].leaves()] == ["done"]


def test_a_template_that_drops_calls_of_tools_is_not_shown_any(monkeypatch):
    """It tells of tools in the prompt and leaves a turn that called one empty."""
    monkeypatch.setitem(chats.TEMPLATES, "silent", SILENT)
    call = {"id": "c", "type": "function", "function": {"name": "sub", "arguments": "{}"}}
    said = [*ASKED["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]

    async def work():
        async with wire() as w:
            hermes, w.gateway.template = w.gateway.template, Gateway(letters("silent")).template
            for body in ({"messages": said}, {**ASKED, "messages": said}):
                error = await w.refused(400, "drops the call of the tool 'sub'", body=json.dumps(body).encode())
                assert "--chat-template" in error["message"]
            w.gateway.template = hermes
            body = json.dumps({"messages": said, "max_tokens": 3}).encode()
            assert (await w.ask("/s/b/v1/chat/completions", body))[0] == 200

    asyncio.run(work())
