"""How an ask becomes text: the policy's chat template, or plain words where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from rolltree.gateway.ask import Ask, Message, named
from rolltree.gateway.errors import GatewayError
from rolltree.task.data.callformats import ReadCalls, format_of
from rolltree.task.data.chat import Chat
from rolltree.task.items import TaskError

KEPT = 64
"""Sets of tools whose format is kept."""
Tools = Sequence[Mapping[str, Any]]


class Template(Protocol):
    """Messages as the text that the policy goes on from."""

    def render(self, messages: Sequence[Message], tools: Tools, *, begin: bool) -> str:
        """The text; `begin` adds what begins the policy's turn."""
        ...

    @property
    def begins(self) -> str:
        """What begins the policy's turn."""
        ...

    @property
    def ends(self) -> str:
        """The special token that ends the policy's turn; "" where there is none."""
        ...

    def calls(self, tools: Tools) -> ReadCalls:
        """What reads the calls of tools in a turn."""
        ...

    def check(self, ask: Ask, shown: str) -> None:
        """Refuse a call whose tools, or calls of tools, do not stand in what the template made of it."""
        ...


@dataclass(frozen=True)
class Plain:
    """A policy without a chat template reads what was said, one text behind the other."""

    begins: str = field(default="", init=False)
    ends: str = field(default="", init=False)

    def render(self, messages: Sequence[Message], tools: Tools, *, begin: bool) -> str:
        """All contents, with nothing between them."""
        if tools:
            raise GatewayError(
                "this policy has no chat template, so it cannot be shown tools; leave tools out, or give it one with "
                "--chat-template FILE", param="tools",
            )  # fmt: skip
        return "".join(str(one["content"]) for one in messages)

    def calls(self, tools: Tools) -> ReadCalls:
        """None ever."""
        return lambda _: ()

    def check(self, ask: Ask, shown: str) -> None:
        """Calls of tools have no place in plain words."""
        if any(one.get("tool_calls") for one in ask.messages or ()):
            raise GatewayError("this policy has no chat template, so it cannot be shown tool_calls; leave them out")


@dataclass(frozen=True)
class Chats:
    """The template of a chat model."""

    tokenizer: Any
    _formats: dict[str, ReadCalls] = field(default_factory=dict[str, ReadCalls], init=False, compare=False, repr=False)

    def render(self, messages: Sequence[Message], tools: Tools, *, begin: bool) -> str:
        """As the template has it; what it refuses is the client's to mend."""
        try:
            return self._chat(tools).render(messages, begin=begin)
        except TaskError as error:
            raise GatewayError(str(error)) from None

    @cached_property
    def _bare(self) -> Chat:
        return self._chat(())

    @property
    def begins(self) -> str:
        """As of `Template`."""
        return self._bare.begins

    @property
    def ends(self) -> str:
        """As of `Template`."""
        return self._bare.ends

    def calls(self, tools: Tools) -> ReadCalls:
        """The format the template itself writes calls in."""
        if not tools:
            return lambda _: ()
        name = named("", list(tools))
        if name not in self._formats:
            try:
                found = format_of(self._chat(tools))
            except TaskError as error:
                raise GatewayError(str(error), param="tools") from None
            if len(self._formats) >= KEPT:
                self._formats.clear()
            self._formats[name] = found
        return self._formats[name]

    def check(self, ask: Ask, shown: str) -> None:
        """Before a token is sampled: the tools stand in the prompt, and calls of them can be read in an answer."""
        try:
            self._chat(ask.tools).check_tools(shown)
        except TaskError as error:
            raise GatewayError(str(error), param="tools") from None
        self.calls(ask.tools)
        told = (call["function"]["name"] for one in ask.messages or () for call in one.get("tool_calls") or ())
        if lost := next((name for name in told if name not in shown), None):
            raise GatewayError(
                f"the chat template of {self._bare.name} drops the call of the tool {lost!r:.80}; leave tool_calls "
                "out, or serve the policy with --chat-template FILE", param="messages",
            )  # fmt: skip

    def _chat(self, tools: Tools) -> Chat:
        return Chat(self.tokenizer, "", tuple(tools))


def template_of(tokenizer: Any) -> Template:
    """The template of a policy's tokenizer; None stands for one without."""
    return Chats(tokenizer) if getattr(tokenizer, "chat_template", None) else Plain()


def rendered(template: Template, ask: Ask) -> str:
    """The text an ask stands for."""
    if ask.messages is not None:
        shown = template.render(ask.messages, ask.tools, begin=True)
        template.check(ask, shown)
        return shown
    return ask.text or ""
