"""What tasks of exact problems share: numbered questions that are answered by letters up to a "!"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rolltree.task.items import SingleTurn
from rolltree.task.protocol import Item, Split


@dataclass(frozen=True, slots=True)
class Questions(SingleTurn):
    """Asks what `asked` says, again and again; a subclass names the task and judges."""

    name: str = "questions"
    level: int = 0
    stop: tuple[str, ...] = ("!",)
    max_tokens: int = 2
    max_turns: int = 0

    def asked(self, split: Split, seed: int, number: int) -> tuple[str, str]:
        """A prompt and its answer."""
        return "?", "g"

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """One question after the other."""
        number = 0
        while True:
            yield Item(f"{split}-{seed}-{number}", *self.asked(split, seed, number))
            number += 1
