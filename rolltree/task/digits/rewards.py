"""What judges an image of a digit: a classifier, how well it compresses, its symmetry, a learned preference.

Images hold numbers about −1 (paper) to 1 (ink). Every reward is a number in [0, 1].
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]
JUDGES = Path(__file__).with_name("judges.npz")
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
