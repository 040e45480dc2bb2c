"""Verified answers by prompt, and those of the prompts most like another: examples for what is not solved yet."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import Prompt
from rolltree.tree.store.values import storable

# Prompts as vectors without a model: hashed character trigrams. What likeness of prompts is measured on.

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


@storable
@dataclass(slots=True)
class Corpus:
    """Verified right answers by prompt, the latest `most` of them."""

    most: int = 512
    solved: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Prompt's id → its text and the answer."""

    def add(self, uid: str, prompt: str, answer: str) -> None:
        """Remember a right answer."""
        self.solved.pop(uid, None)
        self.solved[uid] = [prompt, answer]
        while len(self.solved) > self.most:
            del self.solved[next(iter(self.solved))]

    def nearest(self, prompt: Prompt, count: int) -> list[list[str]]:
        """The most similar other prompts with their answers."""
        others = [pair for uid, pair in self.solved.items() if uid != prompt.uid]
        if not others:
            return []
        like = likeness([prompt.item.prompt], [text for text, _ in others])[0]
        return [others[i] for i in np.argsort(-like, kind="stable")[:count]]
