"""Prompts as vectors without a model: hashed character trigrams. What likeness of prompts is measured on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 512


def vectors(texts: Sequence[str]) -> NDArray[np.float64]:
    """One row of unit length per text: counts of its trigrams (with edges) by hash; the same on every machine."""
    out = np.zeros((len(texts), DIMENSIONS))
    for row, text in zip(out, texts, strict=True):
        padded = f"\x02{text}\x03"
        for i in range(len(padded) - 2):
            row[zlib.crc32(padded[i : i + 3].encode()) % DIMENSIONS] += 1.0
    norms = np.linalg.norm(out, axis=1, keepdims=True)
    return np.divide(out, norms, out=out, where=norms > 0)


def likeness(queries: Sequence[str], keys: Sequence[str]) -> NDArray[np.float64]:
    """Cosine of each query with each key."""
    return vectors(queries) @ vectors(keys).T
