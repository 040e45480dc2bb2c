"""Texts on their way into an engine: what can never fit is refused before it is tokenised."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rolltree.engine.protocol import Capabilities, Codec, EngineError, IntArray

CHARACTERS = 32
"""More characters a token than any text has on average. Tokenising takes some hundred bytes a character, so a text of
100 million characters would take all memory before it could be counted."""


class Reads(Protocol):
    """What reads texts: an engine, or what stands for one."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def codec(self) -> Codec:
        """Its tokenizer."""
        ...


def tokens_of(engine: Reads, text: str, what: str) -> IntArray:
    """The tokens of a text; one that is longer than any context of the engine could hold is refused unread."""
    context = engine.capabilities.max_context
    if len(text) > CHARACTERS * context:
        raise EngineError(
            f"{what} has {len(text):,} characters and cannot fit into a context of {context} tokens; shorten it"
        )
    return np.asarray(engine.codec.encode(text), np.int32)
