"""Item streams: seeded, without end, and split into train and test by what an item asks.

The split is a hash of the item's canonical content, never of its position or seed, so that no seed, level or reordering
can carry a test question into training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rolltree.errors import RolltreeError
from rolltree.task.protocol import Item, Reply, Split

# What tasks without an environment share: no first state, and no step.


class SingleTurn:
    """A task that is asked once and answered once."""

    def start(self, item: Item) -> tuple[Any, str | None]:
        """No environment: no state and no key."""
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """Never part of a rollout here."""
        raise RuntimeError(f"{item.id} has no environment to step: its task has max_turns = 0")


TEST_SHARE = 8
"""One in this many contents belongs to the test split."""
PATIENT = 10_000
"""Unusable draws in a row after which a task is held to have no items."""
LONGEST_LINE = 1 << 24
"""Bytes of a line in a file of items; no context holds as much."""
ENVIRONMENT = "environment"
"""Key in an item's meta: the generator of instances it was made by, where a stream has several."""


class TaskError(RolltreeError, ValueError):
    """A task, level, knob or item that cannot be used: names the thing, the value and the way out."""


def digest(text: str, size: int = 6) -> str:
    """Hex digest of a text, the same on every machine and run."""
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def fraction(text: str) -> float:
    """A number in [0, 1) that depends on the text alone: deterministic chance."""
    return int(digest(text, 8), 16) / 2**64


def split_of(content: str) -> Split:
    """The split a canonical content belongs to."""
    return "test" if int(digest(content, 8), 16) % TEST_SHARE == 0 else "train"


def stream(
    task: str, level: int, split: Split, seed: int, draw: Callable[[Random], tuple[str, Item] | None]
) -> Iterator[Item]:
    """Items of one split without end.

    `draw` gives (canonical content, item) or None where the draw was unusable; items of the other split are skipped.
    Small levels run out of new questions and then repeat old ones. A level whose few questions all belong to the other
    split is refused.
    """
    rng = Random(f"{task}/{level}/{split}/{seed}")
    missed = _Missed()
    while True:
        drawn = draw(rng)
        if drawn is not None and split_of(f"{task}/{drawn[0]}") == split:
            yield drawn[1]
            missed.found = True
        elif not missed.found and missed.hopeless(None if drawn is None else drawn[0]):
            raise TaskError(
                f"{task} (level {level}) has no {split} items: {missed.told}; choose another level, or more items"
            )


@dataclass(slots=True)
class _Missed:
    """Draws of a stream before its first item of the wanted split: whether there will ever be one."""

    found: bool = False
    draws: int = 0
    """Since something new was drawn."""
    contents: set[str] = field(default_factory=set[str])

    def hopeless(self, content: str | None) -> bool:
        """Whether this was one more draw too many: everything there is has been drawn several times over."""
        self.draws += 1
        if content is not None and (name := digest(content, 8)) not in self.contents:
            self.contents.add(name)
            self.draws = 0
        return self.draws > (PATIENT if not self.contents else 200 + 20 * len(self.contents))

    @property
    def told(self) -> str:
        """What was drawn instead, in words."""
        if not self.contents:
            return f"none of {self.draws} draws was usable"
        return f"all {len(self.contents)} different ones that it draws belong to the other split"


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file of JSON lines, counted from 1; one that is too long to be a task's is refused unread."""
    with path.open("rb") as source:
        number = 0
        while line := source.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise TaskError(f"{path} line {number} is longer than {LONGEST_LINE:,} bytes; shorten or drop it")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"byte {error.start} of line {number}"
                raise TaskError(f"{path} is not UTF-8 text ({error.reason} at {where}); save it as UTF-8") from None
            yield number, text.rstrip("\n")


def check_item(item: Item, *, judged: bool = True) -> Item:
    """The item itself, refused with one sentence where it cannot be asked, or cannot be `judged`."""
    if judged and item.answer is None:
        raise TaskError(f"item {item.id!r} has no answer, so no rollout of it could be judged: give it one or drop it")
    if isinstance(item.prompt, str) and not item.prompt:
        raise TaskError(f"item {item.id!r} has an empty prompt: a policy needs at least one token to continue")
    return item


def check_level(task: str, level: int, levels: tuple[int, ...]) -> None:
    """Refuse a level the task does not have."""
    if level not in levels:
        near = min(levels, key=lambda known: abs(known - level))
        raise TaskError(f"{task} has levels {levels[0]}-{levels[-1]}, not {level}: the nearest is {near}")
