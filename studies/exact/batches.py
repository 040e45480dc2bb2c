"""Noise of the gradient against the size of the batch: a tabular policy over questions, exactly known.

Each of `QUESTIONS` questions has `ANSWERS` answers of which one is right; what is seen of a reward is noisy where a
check says so. Samples are counted in rollouts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
QUESTIONS, ANSWERS, GROUP = 8, 6, 4
TARGET, RATE, START, MOST, ETA = 0.9, 2.0, 4, 64, 0.5
NOISE = 1.0
"""Deviation of what is seen of a reward: without it no batch is too small here."""


def softmax(z: Floats) -> Floats:
    """Along the last axis."""
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
