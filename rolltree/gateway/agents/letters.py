"""A codec whose tokens are characters: where a rollout is known by its text, contexts are matched by text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rolltree.engine.protocol import IntArray


class Characters:
    """One id for each character; there is no end of a text."""

    vocab_size = 0x110000
    eos_id = -1

    def encode(self, text: str) -> list[int]:
        """Numbers of the characters."""
        return [ord(c) for c in text]

    def decode(self, ids: Sequence[int] | Any) -> str:
        """The characters."""
        return "".join(map(chr, np.asarray(ids, np.int64).tolist()))


def characters(text: str) -> IntArray:
    """A text as an array of characters."""
    return np.array(Characters().encode(text), np.int32)
