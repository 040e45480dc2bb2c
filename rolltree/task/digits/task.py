"""The task `digits`: draw the digit that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from rolltree.task.digits.rewards import REWARDS, probabilities
from rolltree.task.items import TaskError, check_level, stream
from rolltree.task.protocol import Artefact, Item, Reply, Split, Verdict

LABEL = "label"


@dataclass(frozen=True)
class Digits:
    """The observation is a label, the artefact an image. `reward` says what counts.

    "label" (the classifier's probability of the digit that was asked for), or "compressible", "symmetric",
    "preferred"; whichever it is, all of them are parts of the verdict. A picture counts as solved where the classifier
    sees the digit that was asked for.
    """

    measures: ClassVar[frozenset[str]] = frozenset({LABEL, *REWARDS})
    reward: str = LABEL
    level: int = 1
    name: str = field(default="digits", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 128
    """Most latents of a path; a denoiser ends by itself after its last step."""
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, (1,))
        if self.reward not in (LABEL, *REWARDS):
            raise TaskError(f"digits has no reward {self.reward!r}; choose {', '.join((LABEL, *REWARDS))}")

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Labels without end; the noise that an image begins with is the engine's."""
        return stream(self.name, self.level, split, seed, _draw)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """No environment."""
        return None, None

    async def step(self, item: Item, state: Any, text: Artefact) -> Reply:
        """Never called."""
        raise TaskError("digits has no environment")

    async def verify(self, item: Item, state: Any, text: Artefact) -> Verdict:
        """Judge an image."""
        image = np.asarray(text, np.float32)
        if image.shape != (8, 8):
            raise TaskError(f"digits judges images of 8 × 8, and this is of shape {image.shape}")
        seen = probabilities(image)
        parts = {LABEL: float(seen[item.answer])} | {name: reward(image) for name, reward in REWARDS.items()}
        best = int(seen.argmax())
        # The answer is the image: two that are seen as the same digit are two answers.
        answer = f"{best}, image {crc32(image.tobytes()):08x}"
        return Verdict(parts[self.reward], parts, answer, f"seen as {best}", solved=best == item.answer)


def _draw(rng: Random) -> tuple[str, Item]:
    label, number = rng.randrange(10), rng.randrange(10**6)
    return f"{label}/{number}", Item(f"digits-{label}-{number:06d}", label, label)
