"""The task `digits`: draw the digit that is asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rolltree.task.items import TaskError, check_level, stream
from rolltree.task.protocol import Artefact, Item, Reply, Split, Verdict

# What judges an image of a digit: a classifier, how well it compresses, its symmetry, a learned preference.
#
# Images hold numbers about −1 (paper) to 1 (ink). Every reward is a number in [0, 1].

Image = NDArray[np.float32]
JUDGES = Path(__file__).parent / "digits" / "judges.npz"
"""Weights of the classifier and the preference head, made by `studies.lab.digits.train`."""


@cache
def judges() -> Mapping[str, NDArray[np.float64]]:
    """The weights of the learned judges."""
    with np.load(JUDGES) as file:
        return {name: file[name].astype(np.float64) for name in file.files}


def probabilities(image: Image) -> NDArray[np.float64]:
    """(10,) what the classifier makes of an image: a network of one hidden layer."""
    w = judges()
    hidden = np.maximum(np.clip(image, -1, 1).reshape(-1) @ w["w1"] + w["b1"], 0)
    logits = hidden @ w["w2"] + w["b2"]
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def pixels(image: Image) -> NDArray[np.uint8]:
    """The image in 16 shades."""
    return np.rint((np.clip(image, -1, 1) + 1) * 7.5).astype(np.uint8)


def compressible(image: Image) -> float:
    """1 − the bytes that a lossless compressor needs for the image, over those of noise."""
    small = len(zlib.compress(pixels(image).tobytes(), 9))
    return float(np.clip(1 - (small - 16) / 56, 0, 1))


def symmetric(image: Image) -> float:
    """1 − the mean difference between the image and its mirror image, left to right."""
    bounded = np.clip(image, -1, 1)
    return float(1 - np.abs(bounded - bounded[:, ::-1]).mean() / 2)


def preferred(image: Image) -> float:
    """The chance that the image is preferred to an average one (Bradley–Terry head on the pixels)."""
    w = judges()
    return float(1 / (1 + np.exp(-(np.clip(image, -1, 1).reshape(-1) @ w["prefer"] + w["prefer_bias"][0]))))


REWARDS: Mapping[str, Callable[[Image], float]] = {
    "compressible": compressible, "symmetric": symmetric, "preferred": preferred,
}  # fmt: skip
"""Rewards that ask for no label."""


def shades(image: Any) -> str:
    """The image in characters, two a pixel, for terminals."""
    ramp = " ░▒▓█"
    rows = np.rint((np.clip(np.asarray(image), -1, 1) + 1) * 2).astype(int)
    return "\n".join("".join(ramp[p] * 2 for p in row) for row in rows)


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
