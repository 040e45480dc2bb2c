"""A grammar of spans: which tokens of a turn stand between which tags, and at which level each kind of span is.

A policy that says what it is about to do writes tags around it: `<switch>KEEP</switch><action>^</action>`. Tags are
found in the text and carried over to tokens, so a tokenizer may merge a tag with what stands beside it. Whoever needs
named parts of a turn (credit by span, a mask, an environment that wants the action alone) reads them from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rolltree.errors import RolltreeError
from rolltree.tree.node import Array

Spans = dict[str, tuple[int, int]]
"""Name of a span -> its first position and the one behind its last, in characters or tokens."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One kind of span."""

    name: str
    opens: str
    closes: str
    level: int = 0
    """0 = acting; higher levels choose what is acted for."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The kinds of span a turn may have, each at most once; text outside belongs to none."""

    tags: tuple[Tag, ...]

    def __post_init__(self) -> None:
        names = [tag.name for tag in self.tags]
        if len(set(names)) < len(names) or not all(tag.opens and tag.closes for tag in self.tags):
            raise RolltreeError(f"a grammar needs a name of its own and two marks for each tag, not {names}")

    def find(self, text: str) -> Spans:
        """Character spans with their marks, in the order of the text; a span that is not closed is none."""
        found: Spans = {}
        at = 0
        while True:
            starts = [(start, tag) for tag in self.tags if (start := text.find(tag.opens, at)) >= 0]
            if not starts:
                return found
            start, tag = min(starts, key=lambda pair: pair[0])
            end = text.find(tag.closes, start + len(tag.opens))
            if end < 0:
                at = start + len(tag.opens)
                continue
            found.setdefault(tag.name, (start, end + len(tag.closes)))
            at = end + len(tag.closes)

    def inside(self, text: str, name: str) -> str | None:
        """What stands between a span's marks; None where it has no such span."""
        span = self.find(text).get(name)
        if span is None:
            return None
        tag = self[name]
        return text[span[0] + len(tag.opens) : span[1] - len(tag.closes)]

    def tokens(self, codec: TextCodec, actions: Array) -> Spans:
        """Spans in tokens. A token that stands across a boundary belongs to the span it ends in."""
        ends = _ends(codec, [int(a) for a in actions])
        out: Spans = {}
        taken = 0
        for name, (start, stop) in self.find(codec.decode(actions)).items():
            first = max(next((i for i, end in enumerate(ends) if end > start), len(ends)), taken)
            last = next((i for i, end in enumerate(ends) if end >= stop), len(ends) - 1)
            if first <= last:
                out[name], taken = (first, last + 1), last + 1
        return out

    def write(self, **texts: str) -> str:
        """A turn with these spans, in the grammar's order."""
        return "".join(f"{tag.opens}{texts[tag.name]}{tag.closes}" for tag in self.tags if tag.name in texts)

    def __getitem__(self, name: str) -> Tag:
        found = next((tag for tag in self.tags if tag.name == name), None)
        if found is None:
            raise RolltreeError(f"the grammar has no span {name!r}; it has {', '.join(t.name for t in self.tags)}")
        return found


class TextCodec(Protocol):
    """What is asked of a tokenizer."""

    def decode(self, ids: Sequence[int] | Array, /) -> str:
        """Text of ids."""
        ...


@runtime_checkable
class Spoken(Protocol):
    """A task whose turns follow a grammar."""

    @property
    def grammar(self) -> Grammar:
        """The spans a turn has."""
        ...


@runtime_checkable
class Planned(Protocol):
    """A task whose rollouts begin with a plan in words."""

    @property
    def plan_turns(self) -> int:
        """Turns that the plan is."""
        ...


def _ends(codec: TextCodec, ids: Sequence[int]) -> list[int]:
    """Where each token's text ends in the text of all."""
    alone, end = list[int](), 0
    for token in ids:
        end += len(codec.decode([token]))
        alone.append(end)
    if not ids or end == len(codec.decode(list(ids))):
        return alone
    # Some tokens are parts of a character: only the text of a whole beginning says where it ends.
    return [len(codec.decode(list(ids[: i + 1]))) for i in range(len(ids))]
