"""How a policy writes a tool call and reads the answer.

`Tagged` is what most models that call tools were trained on; `Lines` is one call per line, for small policies.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Tools = Mapping[str, Callable[..., Any]]


class CallError(ValueError):
    """A turn that is no call of a tool there is: an answer to the policy, not a crash."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool by name and what it is given."""

    name: str
    arguments: Mapping[str, Any]


class Calls(Protocol):
    """A way to write calls down."""

    @property
    def stop(self) -> tuple[str, ...]:
        """What ends a turn that holds a call."""
        ...

    def read(self, turn: str, tools: Tools) -> Call:
        """The call in a turn; CallError says what is wrong with it."""
        ...

    def say(self, answer: str) -> str:
        """A tool's answer as the policy reads it."""
        ...

    def explain(self, tools: Tools) -> str:
        """What a prompt says about the tools."""
        ...


@dataclass(frozen=True, slots=True)
class Tagged:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, answered between `before` and `after` (Hermes, Qwen).

    For a chat model give what its template puts between two turns of the model, for instance
    `before="<|im_end|>\\n<|im_start|>user\\n<tool_response>\\n"` and
    `after="\\n</tool_response><|im_end|>\\n<|im_start|>assistant\\n"`.
    """

    before: str = "\n<tool_response>\n"
    after: str = "\n</tool_response>\n"

    @property
    def stop(self) -> tuple[str, ...]:
        """The closing tag."""
        return ("</tool_call>",)

    def read(self, turn: str, tools: Tools) -> Call:
        """The JSON between the last tags."""
        opened = turn.rpartition("<tool_call>")
        inside = opened[2].partition("</tool_call>")[0]
        if not opened[1]:
            raise CallError("there is no <tool_call> before </tool_call>")
        try:
            said = json.loads(inside)
        except json.JSONDecodeError as error:
            raise CallError(f"the call is not JSON: {error.msg} at column {error.colno}") from None
        except (ValueError, RecursionError) as error:  # numbers and nestings that Python does not read
            raise CallError(f"the call cannot be read: {error}") from None
        if not isinstance(said, dict) or not isinstance(said.get("name"), str):
            raise CallError('the call must be an object with "name" and "arguments"')
        arguments = said.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise CallError('"arguments" must be an object')
        return _known(said["name"], arguments, tools)

    def say(self, answer: str) -> str:
        """The answer between the tags."""
        return f"{self.before}{answer}{self.after}"

    def explain(self, tools: Tools) -> str:
        """Name, parameters and docstring of each tool."""
        head = 'Call a tool with <tool_call>{"name": …, "arguments": {…}}</tool_call>. Tools:'
        return "\n".join(["", head, *(_line(name, tool) for name, tool in tools.items()), ""])


@dataclass(frozen=True, slots=True)
class Lines:
    """One call per line: the tool's name and its arguments, separated by blanks (quoted as in a shell).

    `signs` are short for names: with `{"?": "search"}` the line `?ko` is `search ko`. Arguments are read as the types
    the tool's signature names (int, float, bool, str).
    """

    signs: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def stop(self) -> tuple[str, ...]:
        """The end of the line."""
        return ("\n",)

    def read(self, turn: str, tools: Tools) -> Call:
        """The call of the last line."""
        line = turn.strip().rpartition("\n")[2]
        for sign, name in self.signs.items():
            if line.startswith(sign):
                line = f"{name} {line[len(sign) :]}"
                break
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise CallError(f"the line cannot be read: {error}") from None
        if not words:
            raise CallError("the line is empty")
        name, *given = words
        if name not in tools:
            return _known(name, {}, tools)
        parameters = list(inspect.signature(tools[name]).parameters.values())
        if len(given) > len(parameters):
            raise CallError(f"{name} takes {len(parameters)} arguments, not {len(given)}")
        return _known(name, {p.name: _typed(w, p.annotation) for p, w in zip(parameters, given, strict=False)}, tools)

    def say(self, answer: str) -> str:
        """The answer as a line."""
        return f"{answer}\n" if answer else ""

    def explain(self, tools: Tools) -> str:
        """Nothing: a line has no room for it. Say it in the prompt."""
        return ""


def _known(name: str, arguments: Mapping[str, Any], tools: Tools) -> Call:
    if name not in tools:
        raise CallError(f"there is no tool {name!r}; there are {', '.join(tools)}")
    try:
        inspect.signature(tools[name]).bind(**arguments)
    except TypeError as error:
        raise CallError(f"{name}: {error}") from None
    return Call(name, arguments)


def _typed(word: str, wanted: Any) -> Any:
    kind = {"int": int, "float": float, "bool": bool}.get(wanted, wanted) if isinstance(wanted, str) else wanted
    if kind is bool:
        return word.lower() in ("true", "yes", "1")
    if kind not in (int, float):
        return word
    try:
        return kind(word)
    except ValueError:
        raise CallError(f"{word!r} is not a number") from None


def _line(name: str, tool: Callable[..., Any]) -> str:
    about = " ".join((inspect.getdoc(tool) or "").partition("\n\n")[0].split())
    return f"- {name}{inspect.signature(tool)}" + (f": {about}" if about else "")
