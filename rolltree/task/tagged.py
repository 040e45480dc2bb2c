"""A task whose answers begin with a tag that says how they are given (`tagged:calculator`): at once, thought out, or
with tools.

The tag is the policy's own first words and no part of what the environment or the verifier reads. The part `mode` of a
verdict says which it was: 0, 1 or 2 in the order of `tags`, −1 where an answer begins with none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, cast

from rolltree.task.items import TaskError
from rolltree.task.nano.expert import NanoTask
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict, measured

TAGS = ("<instant>", "<reasoning>", "<agentic>")
NO_TAG = -1


@dataclass(frozen=True)
class Tagged:
    """A task under tags."""

    names: str
    """The task."""
    level: int = 0
    """Its level; 0 = its default."""
    tags: tuple[str, ...] = TAGS
    """What answers at once, thought without tools, and the use of tools begin with."""

    def __post_init__(self) -> None:
        if len(set(self.tags)) < 3 or not all(self.tags) or len(self.tags) > 3:
            raise TaskError(f"tagged:{self.names}: tags={self.tags} must be three different texts")
        object.__setattr__(self, "level", self.inner.level)

    @cached_property
    def inner(self) -> Task:
        """The task itself."""
        from rolltree.task.registry import load_task

        return load_task(self.names, level=self.level or None)

    @property
    def name(self) -> str:
        """Name in the registry."""
        return f"tagged:{self.names}"

    @property
    def measures(self) -> frozenset[str] | None:
        """The task's, and the mode."""
        own = measured(self.inner)
        return None if own is None else own | {"mode"}

    @property
    def stop(self) -> tuple[str, ...]:
        """The task's."""
        return self.inner.stop

    @property
    def max_turns(self) -> int:
        """The task's."""
        return self.inner.max_turns

    @property
    def max_tokens(self) -> int:
        """The task's, and as many as a tag has characters."""
        return self.inner.max_tokens + max(map(len, self.tags))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The task's."""
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """The task's."""
        return self.inner.start(item)

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """What the task says to the turn without a tag."""
        return await self.inner.step(item, state, self.read(text)[1])

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """What the task says to the answer without its tag."""
        mode, said = self.read(text)
        verdict = await self.inner.verify(item, state, said)
        return replace(verdict, parts={**verdict.parts, "mode": float(mode)})

    def read(self, text: str) -> tuple[int, str]:
        """The mode of a text, and what stands behind its tag."""
        for mode, tag in enumerate(self.tags):
            if text.startswith(tag):
                return mode, text[len(tag) :]
        return NO_TAG, text

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """The task's expert, whose first turn says what it does: tools where there are any, else thought."""
        first = state == self.inner.start(item)[0]
        text = cast(NanoTask, self.inner).act(item, state, rng, noise)
        return f"{self.tags[2 if self.max_turns else 1]}{text}" if first else text
