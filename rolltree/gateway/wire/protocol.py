"""What a protocol is here: a path, a way to read a body and two ways to write an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rolltree.engine.protocol import Codec
from rolltree.gateway.ask import Ask
from rolltree.gateway.session import Draw, SessionReply
from rolltree.gateway.wire.taken import Fields

Body = Mapping[str, Any]
Event = tuple[str, Mapping[str, Any]]
"""A server-sent event: its name ("" = none) and its data."""


@dataclass(frozen=True, slots=True)
class Written:
    """What an answer is written from."""

    id: str
    model: str
    created: int
    body: Body
    codec: Codec


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One protocol."""

    path: str
    fields: Fields
    """What of a body is served."""
    read: Callable[[Body, int], tuple[Ask, Draw]]
    """What a body asks; the number is the limit of tokens where it gives none."""
    whole: Callable[[Written, SessionReply], Mapping[str, Any]]
    """An answer in one piece."""
    begin: Callable[[Written], Iterator[Event]]
    """Events before the first text of a stream."""
    text: Callable[[Written, str], Iterator[Event]]
    """Events for a piece of text."""
    finish: Callable[[Written, SessionReply, bool], Iterator[Event]]
    """Events behind the last text; the flag says whether text was streamed (else all of it is to be written now)."""
    done: str = ""
    """What ends the stream, where no event does."""


def counted(reply: SessionReply) -> tuple[int, int]:
    """Tokens of the prompt and of all answers."""
    return len(reply.prompt.ids), sum(len(sample.actions) for sample in reply.samples)
