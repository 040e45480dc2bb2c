"""Demonstrations: a nano task's own expert plays it, well or with a share of plausible mistakes.

Each nano task can act for the policy. At noise 0 its turns solve the item; at noise p each decision is, with
probability p, replaced by a mistake that keeps the format: a slipped sum, a wrong column, a wandering step. A policy
trained on such play errs in varied ways, which is what group-relative training needs to have something to compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

from rolltree.task.protocol import Item, Task

Turn = tuple[Literal["policy", "env"], str]
"""Who wrote it, and the text."""


@runtime_checkable
class NanoTask(Task, Protocol):
    """A task that can also play itself."""

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """The expert's next turn in this state (the whole completion where the task is not interactive)."""
        ...


@dataclass(frozen=True, slots=True)
class Transcript:
    """One played rollout: who wrote which text, and the state it ended in."""

    item: Item
    turns: tuple[Turn, ...]
    state: Any

    @property
    def text(self) -> str:
        """Everything after the prompt."""
        return "".join(text for _, text in self.turns)


async def play(task: NanoTask, item: Item, rng: Random, noise: float = 0.0) -> Transcript:
    """Let the task's expert play an item to its end, or to the task's last turn."""
    state, _ = task.start(item)
    if not task.max_turns:
        return Transcript(item, (("policy", task.act(item, state, rng, noise)),), state)
    turns: list[Turn] = []
    for _ in range(task.max_turns):
        text = task.act(item, state, rng, noise)
        reply = await task.step(item, state, text)
        state = reply.state
        turns.append(("policy", text))
        turns.append(("env", reply.text))
        if reply.done:
            break
    return Transcript(item, tuple(turns), state)


async def solve(task: NanoTask, item: Item) -> Transcript:
    """The reference solution of an item: the expert without noise."""
    return await play(task, item, Random(item.id))


def slip(value: int, rng: Random) -> int:
    """A number as a hurried calculator would get it: off by one, by ten, or with two digits swapped."""
    digits = str(abs(value))
    if len(digits) >= 2 and digits[-1] != digits[-2] and rng.random() < 0.3:
        swapped = int(digits[:-2] + digits[-1] + digits[-2])
        return swapped if value >= 0 else -swapped
    return value + rng.choice((-10, -1, 1, 10) if abs(value) >= 10 else (-2, -1, 1, 2))
