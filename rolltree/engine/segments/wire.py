"""What a foreign engine must offer: write on from token ids, read log-probs of token ids, take weights."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rolltree.engine.protocol import EngineError, Sampling

Alternatives = tuple[Sequence[int], Sequence[float]]
"""Ids and log-probs of the most likely tokens at a step, most likely first."""


class BrokenError(Exception):
    """The engine went away for now: what was written stands, and the rest may be asked for again.

    `after` is how many seconds it asks to be left alone.
    """

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class StaleWeightsError(EngineError):
    """The engine came back with other weights than it had."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a foreign engine goes."""

    vocab: int
    context: int
    """Most tokens of prefix and continuation together."""
    alternatives: int
    """Most alternatives it reports beside a token; as many as the vocabulary holds = the whole distribution is seen."""
    of_sampling: bool = False
    """Whether it reports the log-prob under the distribution sampled from by itself."""
    scores: bool = True
    """Whether it can read the log-probs of given tokens."""
    updates: bool = False
    """Whether it takes new weights."""
    entropy: bool = False
    """Whether it reports the entropy of the policy's whole distribution by itself."""
    best: int = 0
    """Most alternatives it reports under the policy whatever the distribution sampled from."""

    @property
    def whole(self) -> bool:
        """Whether the full distribution of every step can be had."""
        return self.alternatives >= self.vocab


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """One call: write on after `tokens`."""

    tokens: Sequence[int]
    most: int
    """Most tokens to write, at least 1."""
    sampling: Sampling
    ends: tuple[int, ...]
    """Ids that end it, eos included where eos ends."""
    seed: int
    alternatives: int
    """How many to report at each step."""
    salt: str
    """Caches made under another salt must not be read."""
    together: int = 1
    """Up to so many tokens may be handed over together. A backend that makes use of it hands over what it still holds
    when its caller is cancelled, as a last piece with the finish "abort"."""
    entropy: bool = False
    """Whether to report the entropy at each step; only of an engine whose reach says it does."""
    best: int = 0
    """How many alternatives under the policy to report in place of those under the distribution sampled from; only of
    an engine whose reach says it can."""
    affinity: str = ""
    """Calls with the same one share prefixes; a backend of several engines keeps them together."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tokens of a call, in order."""

    ids: Sequence[int]
    logp: Sequence[float]
    """Under the full softmax at temperature 1."""
    alternatives: Sequence[Alternatives] = ()
    """One per token, where asked for."""
    sampling_logprob: Sequence[float] | None = None
    """Under the distribution sampled from, by an engine that reports it."""
    prefilled: int = 0
    """Prefix tokens computed; a later piece may correct an earlier one by a negative number."""
    entropy: Sequence[float] = ()
    """Of the policy's whole distribution at each token, where asked for."""
    finish: str = ""
    """Why the call is over, in the engine's own words; empty while it goes on."""


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """Log-probs of given tokens, with as many alternatives as were asked for."""

    logp: Sequence[float]
    alternatives: Sequence[Alternatives] = ()


class Backend(Protocol):
    """A foreign engine. What breaks for a while raises `BrokenError`; what never works raises `EngineError`."""

    @property
    def name(self) -> str:
        """As sentences name it: "the vLLM engine", "the server at …"."""
        ...

    @property
    def reach(self) -> Reach:
        """How far it goes."""
        ...

    @property
    def version(self) -> int:
        """Version of its weights, by its own word where it has one."""
        ...

    def write(self, ask: SegmentRequest) -> AsyncGenerator[Piece]:
        """Write on; closing the generator ends the call at the engine too."""
        ...

    async def read(self, tokens: Sequence[int], start: int, alternatives: int) -> SegmentRead:
        """Log-probs of tokens[start:] given what precedes each."""
        ...

    async def load(self, weights: Any, version: int) -> None:
        """Take new weights under a new version; nothing is being written or read meanwhile."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...
