"""Item streams: seeded, without end, and split into train and test by what an item asks.

The split is a hash of the item's canonical content, never of its position or seed, so that no seed, level or reordering
can carry a test question into training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from random import Random

from rolltree.errors import RolltreeError
from rolltree.task.protocol import Item, Split

TEST_SHARE = 8
"""One in this many contents belongs to the test split."""
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
    Small levels run out of new questions and then repeat old ones.
    """
    rng = Random(f"{task}/{level}/{split}/{seed}")
    while True:
        drawn = draw(rng)
        if drawn is not None and split_of(f"{task}/{drawn[0]}") == split:
            yield drawn[1]


def check_item(item: Item) -> Item:
    """The item itself, refused with one sentence where a verifier could not judge it."""
    if item.answer is None:
        raise TaskError(f"item {item.id!r} has no answer, so no rollout of it could be judged: give it one or drop it")
    if not item.prompt:
        raise TaskError(f"item {item.id!r} has an empty prompt: a policy needs at least one token to continue")
    return item


def check_level(task: str, level: int, levels: tuple[int, ...]) -> None:
    """Refuse a level the task does not have."""
    if level not in levels:
        near = min(levels, key=lambda known: abs(known - level))
        raise TaskError(f"{task} has levels {levels[0]}-{levels[-1]}, not {level}: the nearest is {near}")
