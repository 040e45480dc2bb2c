"""What it takes to move keys, values or weights between devices."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A connection: every message costs its latency, every byte its share of the bandwidth. Round numbers for RDMA."""

    bandwidth: float = 25e9
    """Bytes per second."""
    latency: float = 5e-6
    """Seconds of a message beside its bytes."""

    def seconds(self, size: float, messages: int = 1) -> float:
        """To move so many bytes in so many messages."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of a model of some 7 billion parameters with grouped heads."""

    per_token: float = 131_072.0
    """Bytes of one token over all layers."""
    layers: int = 32
    block: int = 16
    """Tokens of a block of a paged cache."""

    def together(self, link: Link, tokens: int) -> float:
        """Seconds to move a sequence from one contiguous buffer."""
        return link.seconds(tokens * self.per_token)

    def by_blocks(self, link: Link, tokens: int) -> float:
        """Seconds to move it as it lies in a paged cache: a message for the keys and one for the values of each block
        of each layer."""
        return link.seconds(tokens * self.per_token, 2 * self.layers * math.ceil(tokens / self.block))


RDMA, LLAMA_7B = Link(), Cache()
