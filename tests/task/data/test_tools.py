"""Functions and MCP servers as tools of a chat model, in the formats of Hermes and Llama 3."""

import asyncio
import pickle
import shlex
import sys
from pathlib import Path

import pytest

from rolltree.policy.codec import HFCodec
from rolltree.task.data.callformats import hermes, llama
from rolltree.task.data.chat_tools import ChatState
from rolltree.task.data.tools import tool
from rolltree.task.items import TaskError
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from tests.task.data.toy import CHATML, HERMES, LLAMA, sums, tokenizer

TOOLS = '''
from typing import Literal

def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

async def look(what: str, how: Literal["up", "down"] = "up", more: list[int] | None = None) -> dict:
    """Look something up."""
    return {"found": what}

def broken(x: float) -> str:
    """Break."""
    raise RuntimeError("no luck")

def bare(x):
    return x
'''
SERVER = f"{sys.executable} {Path(__file__).parent / 'mcp_server.py'}"


@pytest.fixture
def make(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    path = sums(tmp_path / "s.jsonl")

    def made(template=HERMES, tools=("add", "look", "broken"), eos="<|im_end|>", **knobs):
        named = [f"{tmp_path / 'tools.py'}:{name}" for name in tools]
        task = load_task(path, **{"reward": "exact", "tool": named, **knobs})
        return spoken_by(task, HFCodec(tokenizer(template, eos)))

    return made


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ONE = call("add", '{"a": 1}')


def play(task, *turns):
    item = next(task.items("train"))
    state, _ = task.start(item)
    text, replies = "", []
    for turn in turns:
        reply = asyncio.run(task.step(item, state, turn))
        state, text = reply.state, text + turn + reply.text
        replies.append(reply)
    return item, replies, asyncio.run(task.verify(item, state, text))


def test_the_prompt_holds_the_schemas_and_a_turn_ends_at_its_token(make):
    task = make()
    asked = next(task.items("train")).prompt
    assert '"name": "add", "description": "Add two numbers."' in asked
    assert '"required": ["a"]' in asked
    assert task.stop == ("<|im_end|>",)
    assert (task.max_turns, make(max_turns=3).max_turns) == (8, 3)


def test_calls_of_a_turn_are_made_in_order_and_answered_in_the_template(make):
    task = make()
    turn = call("add", '{"a": 2, "b": 3}') + "\n" + call("look", '{"what": "it"}')
    _, replies, _ = play(task, turn)
    assert replies[0].text == (
        "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n"
        '<|im_start|>user\n<tool_response>\n{"found": "it"}\n</tool_response><|im_end|>\n<|im_start|>assistant\n'
    )
    assert (replies[0].done, replies[0].failed, replies[0].state.calls) == (False, False, 2)


def test_a_turn_without_a_call_is_the_answer_and_the_only_one_that_is_judged(make):
    task = make()
    item = next(task.items("train"))
    _, replies, verdict = play(task, f"I guess {item.answer}? {ONE}", f"{item.answer}")
    assert replies[-1].done
    assert replies[-1].text == ""
    assert (verdict.score, verdict.answer, verdict.parts["calls"]) == (1, item.answer, 1)


def test_a_call_that_is_only_thought_of_is_no_call(make):
    _, replies, _ = play(make(), f"<think>{ONE}</think>7")
    assert replies[0].done


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (call("broken", '{"x": 1}'), "error: RuntimeError: no luck"),
        (call("ad", "{}"), "error: there is no tool 'ad'; there are add, look, broken"),
        (call("add", '{"c": 1}'), "error: TypeError: "),
        ("<tool_call>{oops</tool_call>", "error: the call is not JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}', None),
        ("<tool_call>{", "error: </tool_call> is missing, and the call is not JSON"),
        (call("add", "[1]"), 'error: "arguments" must be an object'),
        ("<tool_call>[]</tool_call>", "error: a call must be an object"),
    ],
)
def test_what_goes_wrong_with_a_call_is_its_answer_and_counted(make, turn, says):
    _, replies, verdict = play(make(), turn, "x")
    assert replies[0].failed is (says is not None)
    assert (says or "2") in replies[0].text
    assert verdict.parts["failed_calls"] == (says is not None)


def test_another_process_gets_the_same_task(make):
    task = make(reward="exact:0.5")
    again = pickle.loads(pickle.dumps(task))
    assert next(again.items("train")) == next(task.items("train"))
    assert again.about == task.about
    assert "with the tools add, look, broken" in again.about
    assert [r.text for r in play(again, ONE, "x")[1]] == [r.text for r in play(task, ONE, "x")[1]]


def test_a_state_is_a_value_that_can_be_played_again(make):
    task = make()
    item = next(task.items("train"))
    state, key = task.start(item)
    once, again = (asyncio.run(task.step(item, state, call("add", '{"a": 1}'))) for _ in range(2))
    assert (once, state, key) == (again, ChatState(), f"{item.id}/0")
    assert once.state_key != key


def test_llamas_calls_are_read_and_answered(make):
    task = make(LLAMA)
    one = '{"name": "add", "parameters": {"a": 40, "b": 2}}'
    _, replies, _ = play(task, f"{one}; {one}", "42")
    assert replies[0].state.calls == 2
    assert replies[0].text.startswith('<|start|>tool<|end|>\n\n"42"')
    assert replies[0].text.endswith("<|start|>assistant<|end|>\n\n")
    assert replies[1].done


def test_formats_read_what_models_write():
    assert [c.arguments for c in hermes('x<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>y')] == [{"a": 1}]
    assert hermes("no call") == []
    two = llama('<|python_tag|>{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {}}')
    assert [c.name for c in two] == ["f", "g"]
    assert llama('{"answer": 42}') == llama("42") == ()
    assert "not JSON" in llama('{"name": "f", ')[0].wrong


def test_schemas_follow_the_signature(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    made = tool(f"{tmp_path / 'tools.py'}:look").schema["function"]
    assert made["parameters"] == {
        "type": "object", "required": ["what"],
        "properties": {"what": {"type": "string"}, "how": {"enum": ["up", "down"]},
                       "more": {"type": "array", "items": {"type": "integer"}}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("template", "tools", "knobs", "says"),
    [
        (CHATML, ("add",), {}, "drops the tools (add does not stand in the prompt)"),
        (None, ("add",), {}, "tools needs a chat template"),
        (HERMES, ("bare",), {}, "has no docstring"),
        (HERMES, ("add", "add"), {}, "two tools are called 'add'"),
        (HERMES, ("add",), {"chat": "off"}, "tools needs the chat template"),
        (HERMES.replace("<tool_call>", "<call>"), ("add",), {}, "writes calls of tools in a way that is not read here"),
        (HERMES.replace("{{ m.content }}\n</tool_response>", "</tool_response>"), ("add",), {}, None),
    ],
)
def test_tools_that_a_template_cannot_carry_are_refused(make, template, tools, knobs, says):
    if says is None:
        with pytest.raises(TaskError, match="drops what the tool add answered"):
            play(make(template, tools), call("add", '{"a": 1}'))
        return
    with pytest.raises(TaskError) as error:
        make(template, tools, **knobs)
    assert says in str(error.value)


def test_tools_of_an_mcp_server(make):
    pytest.importorskip("mcp")
    task = make(tools=(), mcp=SERVER)
    assert '"description": "Add two numbers."' in next(task.items("train")).prompt
    turn = call("add", '{"a": 2, "b": 3}') + call("fail", '{"why": "so"}') + call("add", '{"a": 1, "b": 1}')
    _, replies, verdict = play(task, turn, "5")
    said = replies[0].text
    assert said.index("\n5\n") < said.index("error: Error executing tool fail") < said.index("\n2\n")
    assert (verdict.parts["calls"], verdict.parts["failed_calls"]) == (3, 1)
    with pytest.raises(ConnectionError, match="is gone"):
        play(task, call("leave", "{}"))
    assert "\n5\n" in play(task, call("add", '{"a": 2, "b": 3}'), "x")[1][0].text  # started again


def test_a_server_that_does_not_start_is_one_sentence(make):
    pytest.importorskip("mcp")
    with pytest.raises(TaskError, match="the MCP server 'no-such-program' does not answer"):
        make(tools=(), mcp="no-such-program")


@pytest.mark.parametrize(("code", "says"), [
    ("print('Hello there')", 'it printed "Hello there", which is no message'),
    ("raise RuntimeError('there is no key')", 'its standard error ends with "RuntimeError: there is no key"'),
    ("import sys; sys.stderr.write('x' * 100_000 + chr(10) + 'the end')", 'its standard error ends with "the end"'),
])  # fmt: skip
def test_what_a_server_says_instead_of_messages_stands_in_the_sentence(make, capfd, code, says):
    pytest.importorskip("mcp")
    with pytest.raises(TaskError, match="does not answer") as told:
        make(tools=(), mcp=shlex.join([sys.executable, "-c", code]))
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_server_that_leaves_says_its_last_words(make):
    pytest.importorskip("mcp")
    task = make(tools=(), mcp=SERVER)
    with pytest.raises(ConnectionError, match=r'is gone.*its standard error ends with "out of credit"'):
        play(task, call("leave", '{"why": "out of credit"}'))


def test_a_command_whose_quotation_marks_do_not_close_is_one_sentence(make):
    pytest.importorskip("mcp")
    with pytest.raises(TaskError, match=r"cannot be cut into words .*; close its quotation marks"):
        make(tools=(), mcp="python 'server.py")
