"""Environment classes as people write them for TRL, and policies that play them word for word."""

from __future__ import annotations

import string
import threading
from collections.abc import Callable

from rolltree.engine.tabular import Letters, TabularEngine

CODEC = Letters(string.printable + "\x00", eos_id=len(string.printable))


class Counter:
    """Count to a number by steps; the row says how far."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1

    def reset(self, goal: int, **_: object) -> str:
        self.at, self.goal, self.done = 0, goal, False
        return f"count to {goal}\n"

    def add(self, step: int) -> str:
        """Add to the count.

        Args:
            step: How much.
        """
        if step == 0:
            raise ValueError("a step of 0 leads nowhere")
        self.at += step
        return f"at {self.at}"

    async def stop(self) -> None:
        """Say that the count is right."""
        self.done = True

    def crash(self) -> str:
        """A tool that has a bug."""
        raise AttributeError("no such attribute")

    def hang(self) -> str:
        """A tool that never comes back."""
        threading.Event().wait()
        return "never"

    def leave(self) -> str:
        """A tool that ends the program."""
        raise SystemExit(3)

    def get_reward(self) -> float:
        return float(self.at == self.goal)


class Locked(Counter):
    """The same, holding something that cannot be copied."""

    built = 0

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def one_hot(at: int) -> list[float]:
    return [float(i == at) for i in range(CODEC.vocab_size)]


def scripted(turn_of: Callable[[list[str]], str | None], after: str = "\n") -> TabularEngine:
    """An engine whose next turn is a function of the lines so far (prompt's last line first); None ends the rollout."""

    def row(prefix: object) -> list[float]:
        text = CODEC.decode(prefix)
        *lines, begun = text.split(after)
        turn = turn_of(lines)
        if turn is None:
            return one_hot(CODEC.eos_id)
        return one_hot(CODEC.alphabet.index((turn + after)[len(begun)]))

    return TabularEngine(row, CODEC)
