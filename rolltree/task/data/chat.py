"""A tokenizer's chat template: messages as the text a chat model continues, and what it writes around turns.

The template is the model's own; nothing of its format is known here. What stands behind a turn of the model, and
between that turn and the next, is read off rendered conversations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from rolltree.policy.quoted import Quoted
from rolltree.task.items import TaskError
from rolltree.task.spoken import Messages, Spoken, found, mark

# Think tags: what a model thinks stands between them, and its answer behind them.


@dataclass(frozen=True, slots=True)
class Think:
    """A pair of tags; empty ones mean that the whole text is the answer."""

    opens: str = "<think>"
    closes: str = "</think>"

    def answer(self, text: str, prompt: str = "") -> str:
        """What stands behind the last closing tag; "" where thinking was begun, here or before, and not ended."""
        if not self.closes:
            return text
        before, closed, after = text.rpartition(self.closes)
        if closed:
            return after
        begun = self.opens in text or (prompt.rpartition(self.opens)[2].strip() == "" and self.opens in prompt)
        return "" if begun else before + after

    def well_formed(self, text: str, prompt: str = "") -> bool:
        """Whether a text is one block of thought, from its beginning, and then an answer."""
        if not self.closes:
            return bool(text.strip())
        inside = text.strip()
        if self.opens in prompt and not prompt.rpartition(self.opens)[2].strip():
            inside = self.opens + inside
        thought, closed, answer = inside.partition(self.closes)
        rest = thought.removeprefix(self.opens)
        once = self.opens not in rest and self.opens not in answer and self.closes not in answer
        return thought.startswith(self.opens) and bool(closed) and once and bool(answer.strip())


def think_tags(told: str) -> Think:
    """`auto` (`<think>…</think>`), `off`, or an opening and a closing tag with a comma between them."""
    if told == "auto":
        return Think()
    if told == "off":
        return Think("", "")
    opens, comma, closes = told.partition(",")
    if not (opens.strip() and comma and closes.strip()):
        raise TaskError(f"--think {told} is no pair of tags; write auto, off, or both with a comma: '<think>,</think>'")
    return Think(opens.strip(), closes.strip())


MARK, ASKED, HEARD = "rolltree0answer", "rolltree0question", "rolltree0reply"
"""Texts that stand in no template."""


@dataclass(frozen=True)
class Chat:
    """The template of one tokenizer, with the system message and tools every prompt gets."""

    tokenizer: Any
    system: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON schemas, as templates take them."""

    def prompt(self, asked: str | Messages) -> Spoken:
        """A prompt with the beginning of the model's turn behind it."""
        return Spoken.of(self, self.messages(asked))

    def messages(self, asked: str | Messages) -> list[Mapping[str, Any]]:
        """A text as a user's message, messages as they are; the system message goes before, unless they have one."""
        said: list[Mapping[str, Any]] = [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked)
        if self.system and said[0].get("role") != "system":
            return [{"role": "system", "content": self.system}, *said]
        return said

    def render(self, messages: Messages, *, begin: bool) -> str:
        """Messages as text; `begin` adds what begins the model's turn.

        Where the template knows no system message, its text begins the first message of the user.
        """
        if messages and messages[0].get("role") == "system" and not self.takes_system:
            return self._written(_folded(messages), begin=begin)
        return self._written(messages, begin=begin)

    @property
    def bare(self) -> Chat:
        """The template without a system message and without tools."""
        return self._bare

    @cached_property
    def _bare(self) -> Chat:
        return Chat(self.tokenizer) if self.system or self.tools else self

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template writes a system message, which some refuse and some drop."""
        told = [{"role": "system", "content": MARK}, {"role": "user", "content": ASKED}]
        try:
            return MARK in self._written(told, begin=True)
        except TaskError:
            return False

    def _written(self, messages: Messages, *, begin: bool) -> str:
        given = {"tools": list(self.tools)} if self.tools else {}
        try:
            text: Any = self.tokenizer.apply_chat_template(
                [dict(m) for m in messages], tokenize=False, add_generation_prompt=begin, **given
            )
        except Exception as error:  # templates are programs of their own and raise what they like
            roles = ", ".join(str(m.get("role")) for m in messages)
            first = (str(error).strip().splitlines() or [""])[0]
            raise TaskError(
                f"the chat template of {self.name} refuses the messages ({roles}): {type(error).__name__}: {first}; "
                "change the messages, or use --chat off"
            ) from None
        return str(text)

    @property
    def name(self) -> str:
        """Whose template it is."""
        return str(getattr(self.tokenizer, "name_or_path", "") or "the tokenizer")

    @cached_property
    def begins(self) -> str:
        """What begins the model's turn; one that adds nothing is refused, unless turns begin with nothing."""
        asked = self.messages(ASKED)
        bare, begun = self.render(asked, begin=False), self.render(asked, begin=True)
        if begun == bare:
            said = self.render([*asked, {"role": "assistant", "content": MARK}], begin=False).partition(MARK)[0]
            if said.rstrip() == bare.rstrip():
                return ""
        if not begun.startswith(bare) or begun == bare:
            raise TaskError(
                f"the chat template of {self.name} has no generation prompt: add_generation_prompt changes nothing, so "
                "the model would not know that it is its turn; mend the template, or use --chat off"
            )
        return begun[len(bare) :]

    @property
    def ends(self) -> str:
        """The special token that ends the model's turn: the first behind what it said; "" where there is none."""
        return self._ends

    @cached_property
    def _ends(self) -> str:
        talk = self.render([*self.messages(ASKED), {"role": "assistant", "content": MARK}], begin=False)
        rest = talk.rpartition(MARK)[2]
        found = [(rest.find(token), token) for token in specials(self.tokenizer) if token in rest]
        return min(found)[1] if found else ""

    def check(self) -> None:
        """Refuse a template that would drop what it is given."""
        asked = self.messages(ASKED)
        shown = self.render(asked, begin=True)
        if ASKED not in shown:
            raise TaskError(f"the chat template of {self.name} drops the user's message; mend it, or use --chat off")
        _ = self.begins
        self.check_tools(shown)

    def check_tools(self, shown: str) -> None:
        """Refuse a template that drops the tools from a prompt."""
        missing = [name for name in (str(_function(t).get("name")) for t in self.tools) if name not in shown]
        if missing:
            raise TaskError(
                f"the chat template of {self.name} drops the tools ({', '.join(missing[:5])} does not stand in the "
                "prompt); choose a model whose template takes tools, or give it one with --chat-template FILE"
            )

    def answers(self, said: Sequence[tuple[str, str]]) -> Quoted:
        """What the environment writes after a turn that called tools: everything from the turn's end to the next turn.

        `said` are names of tools and what they answered, in order.
        """
        rest = self._behind_turn([{"role": "tool", "name": name, "content": text} for name, text in said])
        # Some templates write what a tool said as JSON.
        if lost := [n for n, text in said if text.strip() not in rest and json.dumps(text)[1:-1] not in rest]:
            raise TaskError(f"the chat template of {self.name} drops what the tool {lost[0]} answered; choose another")
        marked = self._behind_turn([{"role": "tool", "name": n, "content": mark(i)} for i, (n, _) in enumerate(said)])
        return self._quoted(rest, marked, [text for _, text in said])

    def again(self, text: str) -> Quoted:
        """What is written behind a turn of the model that has ended, where the user says something again."""
        rest, marked = (self._behind_turn([{"role": "user", "content": said}]) for said in (text, mark(0)))
        return self._quoted(rest, marked, [text])

    def _behind_turn(self, messages: Messages) -> str:
        """What is written behind the words of a turn of the model: its end, messages, and what begins the next."""
        turn: Mapping[str, Any] = {"role": "assistant", "content": MARK}
        return self.render([*self.messages(ASKED), turn, *messages], begin=True).partition(MARK)[2]

    def _quoted(self, rest: str, marked: str, texts: Sequence[str]) -> Quoted:
        """The same without the token that ends the turn, with the places of the texts."""
        skipped = rest.index(self.ends) + len(self.ends) if self.ends and self.ends in rest else 0
        data = tuple((one.start - skipped, one.stop - skipped) for one in found(rest, marked, texts))
        return Quoted(rest[skipped:], data)

    def around_user(self) -> tuple[str, str]:
        """What stands around a user's message between two turns of the model."""
        before, heard, after = self.again(HEARD).partition(HEARD)
        if not heard:
            raise TaskError(f"the chat template of {self.name} drops a user's second message; use --chat off")
        return before, after

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """How the template writes a call of a tool: what tells the model's own format."""
        called = {"type": "function", "id": "call00000", "function": {"name": name, "arguments": dict(arguments)}}
        turn = {"role": "assistant", "content": "", "tool_calls": [called]}
        return self.render([*self.messages(ASKED), turn], begin=False).rpartition(ASKED)[2]


def chat_of(tokenizer: Any, system: str, tools: tuple[Mapping[str, Any], ...] = ()) -> Chat | None:
    """The checked template of a tokenizer; None where it has none and nothing was asked that needs one."""
    if getattr(tokenizer, "chat_template", None):
        chat = Chat(tokenizer, system, tools)
        chat.check()
        return chat
    asked = "tools" if tools else "--system" if system else ""
    if asked:
        name = getattr(tokenizer, "name_or_path", "") or "this policy"
        raise TaskError(f"{asked} needs a chat template, and {name} has none; choose a chat model")
    return None


def _folded(messages: Messages) -> list[Mapping[str, Any]]:
    """The system message as the beginning of the first message behind it."""
    told, first, *rest = messages
    said, content = str(told.get("content", "")), first.get("content")
    if isinstance(content, list):
        return [{**first, "content": [{"type": "text", "text": f"{said}\n\n"}, *cast("list[Any]", content)]}, *rest]
    return [{**first, "content": f"{said}\n\n{content}"}, *rest]


def specials(tokenizer: Any) -> tuple[str, ...]:
    """Texts of the special tokens, those without a role of their own included."""
    known: list[str] = [str(token) for token in getattr(tokenizer, "all_special_tokens", ())]
    added = cast(Mapping[int, Any], getattr(tokenizer, "added_tokens_decoder", {}))
    known += [str(token.content) for token in added.values() if token.special]
    return tuple(dict.fromkeys(known))


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], tool.get("function", tool))
