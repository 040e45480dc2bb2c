"""How an ask becomes text: the policy's chat template, or plain words where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from rolltree.gateway.ask import Ask, Message
from rolltree.gateway.errors import GatewayError
from rolltree.task.data.callformats import ReadCalls, format_of
from rolltree.task.data.chat import Chat
from rolltree.task.items import TaskError

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


@dataclass(frozen=True)
class Plain:
    """A policy without a chat template reads what was said, one text behind the other."""

    begins: str = field(default="", init=False)
    ends: str = field(default="", init=False)

    def render(self, messages: Sequence[Message], tools: Tools, *, begin: bool) -> str:
        """All contents, with nothing between them."""
        if tools:
            raise GatewayError("this policy has no chat template, so it cannot be shown tools; leave tools out")
        return "".join(str(one["content"]) for one in messages)

    def calls(self, tools: Tools) -> ReadCalls:
        """None ever."""
        return lambda _: ()


@dataclass(frozen=True)
class Chats:
    """The template of a chat model."""

    tokenizer: Any

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
        try:
            return format_of(self._chat(tools))
        except TaskError as error:
            raise GatewayError(str(error)) from None

    def _chat(self, tools: Tools) -> Chat:
        return Chat(self.tokenizer, "", tuple(tools))


def template_of(tokenizer: Any) -> Template:
    """The template of a policy's tokenizer; None stands for one without."""
    return Chats(tokenizer) if getattr(tokenizer, "chat_template", None) else Plain()


def rendered(template: Template, ask: Ask) -> str:
    """The text an ask stands for."""
    if ask.messages is not None:
        return template.render(ask.messages, ask.tools, begin=True)
    return ask.text or ""
