"""Prompts of a chat model: messages with texts beside them, rendered once by the template of the model that reads them.

A prompt without a template is a plain text, and a text beside it is put in front of it or behind it. A spoken prompt
takes the same text into the user's message, where the same place is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from rolltree.policy.quoted import Quoted
from rolltree.task.items import TaskError

Messages = Sequence[Mapping[str, Any]]


class Speaker(Protocol):
    """A chat template with its tools."""

    @property
    def name(self) -> str:
        """Whose template it is."""
        ...

    @property
    def ends(self) -> str:
        """The special token that ends the model's turn; "" where there is none."""
        ...

    @property
    def bare(self) -> Speaker:
        """The template without a system message and without tools: what a role is asked in."""
        ...

    def prompt(self, asked: str) -> Spoken:
        """A user's question behind the system message, and the beginning of the model's turn."""
        ...

    def render(self, messages: Messages, *, begin: bool) -> str:
        """Messages as text; `begin` adds what begins the model's turn."""
        ...

    def again(self, text: str) -> Quoted:
        """A user's message behind a turn of the model that has ended, and the beginning of its next turn."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """A text beside a prompt, and whose it is: the name of a slot, or "" where nobody asks for its place."""

    text: str
    owner: str = ""


Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """Texts beside the messages of a prompt, each in its place."""

    before: Pieces = ()
    """In front of the last message of the user."""
    after: Pieces = ()
    """Behind it, in the same message."""
    turn: Pieces = ()
    """The beginning of the model's own turn."""

    def with_more(self, more: Beside) -> Beside:
        """These, and others around them."""
        return Beside(more.before + self.before, self.after + more.after, self.turn + more.turn)


class Spoken(Quoted):
    """A prompt as a chat model reads it, which knows its messages.

    Added to a text it takes that into the user's message. Written into another text (`format`) it is its question:
    what a role or an operator is told in words of its own, never in the control tokens of a template.
    """

    speaker: Speaker
    messages: tuple[Mapping[str, Any], ...]
    """Without what was put beside them."""
    beside_it: Beside
    places: Mapping[str, tuple[int, int]]
    """Where the text of each owner stands, in characters."""

    @classmethod
    def of(cls, speaker: Speaker, messages: Messages, beside: Beside | None = None) -> Spoken:
        """Messages in a template; a text with an owner that the template loses is refused."""
        around = beside or Beside()
        text, data, places = _rendered(speaker, messages, around)
        made = cast(Spoken, Quoted.__new__(cls, text, data))
        made.speaker, made.messages, made.beside_it, made.places = speaker, tuple(messages), around, places
        return made

    def beside(self, more: Beside) -> Spoken:
        """The prompt with more texts."""
        return Spoken.of(self.speaker, self.messages, self.beside_it.with_more(more))

    def spoken_by(self, speaker: Speaker) -> Spoken:
        """The same messages in another model's template."""
        return Spoken.of(speaker, self.messages, self.beside_it)

    @property
    def question(self) -> str:
        """What is asked, in words: all messages but the system's, with the texts beside them."""
        said = _placed(self.messages, Beside(self.beside_it.before, self.beside_it.after))
        told = (_words(m.get("content")) for m in said if m.get("role") != "system")
        return "\n\n".join(text for text in told if text)

    def __format__(self, spec: str) -> str:
        return format(self.question, spec)

    def __add__(self, text: str, /) -> Spoken:  # pyright: ignore[reportIncompatibleMethodOverride]
        said = (Piece(str(text)),) if text else ()
        return self.beside(Beside(turn=said) if self.beside_it.turn else Beside(after=said))

    def __radd__(self, text: str, /) -> Spoken:
        return self.beside(Beside(before=(Piece(text),) if text else ()))


def question_of(prompt: Any) -> Any:
    """What a prompt asks in words; a plain one is its own question."""
    return prompt.question if isinstance(prompt, Spoken) else prompt


# Rendering: every text is marked once, so that it is known where the template wrote it.

MARK = re.compile(r"rolltree0part(\d+)0")


class _Text(tuple[Piece, ...]):
    """One text of a message, as pieces."""

    __slots__ = ()

    @property
    def whole(self) -> str:
        return "".join(piece.text for piece in self)


def _rendered(
    speaker: Speaker, messages: Messages, beside: Beside
) -> tuple[str, tuple[tuple[int, int], ...], dict[str, tuple[int, int]]]:
    placed = _placed(messages, beside)
    texts = list(_texts(placed))
    wholes = [one.whole for one in texts]
    text = speaker.render(_filled(placed, wholes), begin=True)
    marked = speaker.render(_filled(placed, [mark(i) for i in range(len(texts))]), begin=True)
    data: list[tuple[int, int]] = []
    places: dict[str, tuple[int, int]] = {}
    for place in found(text, marked, wholes):
        at, length = place.start, place.stop - place.start
        data.append((at, place.stop))
        start = -place.trimmed
        for piece in texts[place.number]:
            stop = start + len(piece.text)
            if piece.owner:
                places[piece.owner] = (at + min(max(start, 0), length), at + min(max(stop, 0), length))
            start = stop
    for piece in beside.turn:
        start, text = len(text), text + piece.text
        data.append((start, len(text)))
        if piece.owner:
            places[piece.owner] = (start, len(text))
    owners = (p.owner for p in (*beside.before, *beside.after) if p.owner and p.text.strip())
    if lost := next((owner for owner in owners if places.get(owner, (0, 0))[0] == places.get(owner, (0, 0))[1]), None):
        raise TaskError(f"the chat template of {speaker.name} changes or drops the text {lost!r} beside the prompt")
    return text, tuple(data), places


@dataclass(frozen=True, slots=True)
class Found:
    """Where a template wrote a text."""

    number: int
    """Which text."""
    start: int
    stop: int
    trimmed: int
    """How many characters of its beginning the template left out."""


def mark(number: int) -> str:
    """Stands for a text; no template writes it."""
    return f"rolltree0part{number}0"


def found(text: str, marked: str, texts: Sequence[str]) -> Iterator[Found]:
    """Where each text stands in what a template made of them; `marked` is the same made of their marks."""
    at, cursor = 0, 0
    for one in MARK.finditer(marked):
        between, number = marked[cursor : one.start()], int(one[1])
        cursor = one.end()
        here = text.find(between, at)  # at once, unless the template looked at what a text says
        if here < 0:
            return
        at = here + len(between)
        whole = texts[number]
        as_json = json.dumps(whole, ensure_ascii=False)[1:-1]
        for shape in (whole, whole.lstrip(), whole.rstrip(), whole.strip(), as_json):
            if shape and text.startswith(shape, at):
                yield Found(number, at, at + len(shape), max(whole.find(shape), 0))
                at += len(shape)
                break


def _placed(messages: Messages, beside: Beside) -> list[dict[str, Any]]:
    """Messages whose texts are pieces, with the texts beside them."""
    said = [{**one, "content": _pieces(one.get("content"))} for one in messages]
    users = [i for i, one in enumerate(said) if one.get("role") == "user"]
    last = users[-1] if users else len(said) - 1
    said[last]["content"] = _around(beside.before, said[last]["content"], beside.after)
    return said


def _pieces(content: Any) -> Any:
    if isinstance(content, str):
        return _Text((Piece(content),))
    if not isinstance(content, list | tuple):
        return content
    parts = cast("Sequence[Any]", content)
    return [
        {**cast("Mapping[str, Any]", part), "text": _Text((Piece(str(part["text"])),))}
        if isinstance(part, Mapping) and "text" in part else part
        for part in parts
    ]  # fmt: skip


def _around(before: Pieces, content: Any, after: Pieces) -> Any:
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        head = [{"type": "text", "text": _Text(before)}] if before else []
        return [*head, *parts, *([{"type": "text", "text": _Text(after)}] if after else [])]
    return _Text((*before, *cast("Pieces", content or ()), *after))


def _texts(messages: Messages) -> Iterator[_Text]:
    for one in messages:
        content = one.get("content")
        if isinstance(content, _Text):
            yield content
        elif isinstance(content, list):
            for part in cast("list[Any]", content):
                if isinstance(part, Mapping) and isinstance(part.get("text"), _Text):
                    yield cast(_Text, part["text"])


def _filled(messages: Messages, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The messages with plain texts in place of pieces."""
    left = iter(texts)

    def fill(content: Any) -> Any:
        if isinstance(content, _Text):
            return next(left)
        if isinstance(content, list):
            parts = cast("list[Any]", content)
            return [
                {**part, "text": next(left)} if isinstance(part, Mapping) and isinstance(part.get("text"), _Text)
                else part for part in parts
            ]  # fmt: skip
        return content

    return [{**one, "content": fill(one.get("content"))} for one in messages]


def _words(content: Any) -> str:
    if isinstance(content, _Text):
        return content.whole
    return "\n".join(one.whole for one in _texts([{"content": content}]))
