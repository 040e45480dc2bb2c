"""What the client gets of a sample: its text without what ended it, and the calls of tools in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolltree.engine.protocol import Codec, Sample, exact_text
from rolltree.gateway.ask import Ask
from rolltree.gateway.template import Template
from rolltree.task.data.callformats import OPENS, ToolCall


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """One answer to a call."""

    text: str
    """What was said, calls of tools included."""
    message: Mapping[str, Any]
    """The message of a chat."""
    finish: str
    """stop, length or tool_calls, as OpenAI names them."""
    stopped_by: str = ""


def read(codec: Codec, template: Template, ask: Ask, sample: Sample, stops: Sequence[str], name: str) -> CallAnswer:
    """Read a sample for a client that asked to stop at `stops`; calls get ids that begin with `name`."""
    finish = "length" if sample.finish == "length" else "stop"
    return answer_of(template, ask, shown(codec, sample, stops), finish, sample.stopped_by, name)


def answer_of(template: Template, ask: Ask, text: str, finish: str, stopped_by: str, name: str) -> CallAnswer:
    """A text as the answer to a call: a message, with the calls of tools that can be read in it."""
    if ask.messages is None:
        return CallAnswer(text, {}, finish, stopped_by)
    found = list(template.calls(ask.tools)(text))
    if not found or any(one.wrong for one in found):
        # A call that cannot be read is shown as it was written: the agent sees what the policy said.
        return CallAnswer(text, {"role": "assistant", "content": text}, finish, stopped_by)
    message = {
        "role": "assistant",
        "content": text.partition(OPENS)[0] if OPENS in text else "",
        "tool_calls": [_call(one, f"{name}_{i}") for i, one in enumerate(found)],
    }
    return CallAnswer(text, message, "tool_calls", stopped_by)


def shown(codec: Codec, sample: Sample, stops: Sequence[str]) -> str:
    """The text of a sample without special tokens, and without the string it stopped at."""
    text = codec.decode(sample.actions)
    if sample.stopped_by and sample.stopped_by in stops:
        exact = exact_text(codec, sample.actions)
        at = exact.rfind(sample.stopped_by)
        text = exact[:at] if sample.stopped_by not in text else text[: text.rfind(sample.stopped_by)]
    return text


def _call(told: ToolCall, id: str) -> Mapping[str, Any]:
    return {"id": id, "type": "function", "function": {"name": told.name, "arguments": dict(told.arguments)}}
