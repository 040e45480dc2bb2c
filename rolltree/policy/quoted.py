"""Texts that know which of their characters are data: what looks like a control token there stays text."""

from __future__ import annotations

from typing import Any


class Quoted(str):
    """A text with its data: questions, hints, other attempts. The rest is a chat template's own.

    A codec reads control tokens in the template's part alone. Joined with other texts it is a plain one again.
    """

    data: tuple[tuple[int, int], ...]
    """First character of each part that is data, and the one behind its last, in order."""

    def __new__(cls, text: str, data: tuple[tuple[int, int], ...] = ()) -> Quoted:
        """`data` are ranges of characters of `text`."""
        made = super().__new__(cls, text)
        made.data = data
        return made

    def part(self, start: int, stop: int) -> Quoted:
        """From one character to another."""
        kept = ((max(a, start) - start, min(b, stop) - start) for a, b in self.data if a < stop and b > start)
        return Quoted(self[start:stop], tuple(kept))

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # another process judges texts; it asks nobody

    def __deepcopy__(self, memo: dict[int, Any]) -> Quoted:
        return self
