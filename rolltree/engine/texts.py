"""Observations on their way into an engine: what can never fit, or is nothing its channel knows, is refused first."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rolltree.engine.protocol import Capabilities, Channel, EngineError, IntArray, reads_text
from rolltree.tree.node import Array, as_actions

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
    def codec(self) -> Channel:
        """Its channel."""
        ...


def actions_of(engine: Reads, given: Any, what: str) -> Array:
    """The actions of an observation, or of actions given as such: a text or token ids for a language policy.

    Nothing is cast in silence: what the engine's channel does not know is refused by name.
    """
    codec = engine.codec
    if not reads_text(codec):
        return as_actions(codec.encode(given))
    if isinstance(given, str):
        return tokens_of(engine, given, what)
    array = np.asarray(given)
    if not array.size and array.ndim == 1:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        shape = "one number" if array.ndim == 0 else f"shape {array.shape}"
        raise EngineError(
            f"{what} is {type(given).__name__} ({array.dtype}, {shape}), and {type(engine).__name__} writes tokens; "
            "give a text or token ids"
        )
    return array.astype(np.int32)


def tokens_of(engine: Reads, text: str, what: str) -> IntArray:
    """The tokens of a text; one that is longer than any context of the engine could hold is refused unread."""
    context = engine.capabilities.max_context
    if len(text) > CHARACTERS * context:
        raise EngineError(
            f"{what} has {len(text):,} characters and cannot fit into a context of {context} tokens; shorten it"
        )
    return np.asarray(engine.codec.encode(text), np.int32)
