"""How a call stands to what its session asked before: told by the conversations it repeats, for events and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rolltree.gateway.ask import Ask

How = Literal["begins", "goes on", "branches off", "edited", "shortened", "asked again"]
"""begins: not even its first message was sent before. goes on: all of an earlier conversation, and more. branches off:
the same, where another call went on already. edited: an earlier turn of the policy was changed. shortened: begins as an
earlier conversation does and leaves out turns of the policy (compaction). asked again: the same call once more."""


@dataclass(repr=False)
class ConversationHistory:
    """The conversations of one session, by their names (`Ask.names`; a text or ids stand for themselves)."""

    _asked: set[object] = field(default_factory=set[object])
    _begun: set[str] = field(default_factory=set[str])
    """All beginnings of all conversations."""
    _followed: set[int] = field(default_factory=set[int])
    """Turns that some call went on from."""

    def how(self, ask: Ask, names: Sequence[str], last: int | None) -> How:
        """`last` is the turn behind whose whole conversation the call goes on; None where it repeats none."""
        if _name(ask, names) in self._asked:
            return "asked again"
        known = next((i for i, name in enumerate(names) if name not in self._begun), len(names))
        if ask.messages and 0 < known < len(names) and ask.messages[known]["role"] == "assistant":
            return "edited"
        if last is not None:
            return "branches off" if last in self._followed else "goes on"
        return "shortened" if known else "begins"

    def answered(self, ask: Ask, names: Sequence[str], last: int | None) -> None:
        """Keep a call that was answered."""
        self._asked.add(_name(ask, names))
        self._begun.update(names)
        if last is not None:
            self._followed.add(last)

    def begun(self, name: str) -> None:
        """Keep a conversation that ends with an answer."""
        self._begun.add(name)


def _name(ask: Ask, names: Sequence[str]) -> object:
    return names[-1] if names else (ask.text, ask.ids)
