"""Prefixes that one engine has read and another takes over, so that they are not read a second time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rolltree.tree.node import Array


@dataclass(frozen=True, slots=True)
class Offered:
    """What an engine hands over, without its bytes."""

    prefixes: int = 0
    """Texts that nothing handed over goes on from."""
    tokens: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a hand-over."""

    tokens: int = 0
    """Tokens that the engine did not have."""
    refused: str = ""
    """Why nothing was taken: version, weights, shapes, dtype, block, damaged, room; empty = it was taken."""


@runtime_checkable
class HandsOver(Protocol):
    """An engine that keeps prefixes and can give them to another one of the same weights."""

    @property
    def spared(self) -> int:
        """Tokens taken over that requests have found since: nobody had to read them here."""
        ...

    async def export_prefixes(self, texts: Sequence[Array], *, below: bool = False) -> tuple[Offered, Any]:
        """What is kept of texts, and with `below` of all that goes on from them; None where that is nothing."""
        ...

    async def import_prefixes(self, blocks: Any) -> Taken:
        """Keep what another engine has exported; what does not fit this one's weights is refused, never an error."""
        ...
