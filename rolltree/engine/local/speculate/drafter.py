"""What guesses: told of every text let in, written and gone, and asked what comes after guessed paths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from rolltree.engine.local.speculate.tree import Drafts, Guess
from rolltree.engine.protocol import Sampling

REACH = 12
"""Tokens of a text that a `DraftAsk` and `Drafter.written` show at least, where there are so many."""


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """What comes after a text and a guessed path below it?"""

    key: int
    """Of the request."""
    tail: Sequence[int]
    """The end of its text."""
    path: tuple[int, ...]
    most: int
    """How many guesses are wanted."""
    uniform: float
    """The number in [0, 1) that will decide this token: it is the request's own and known beforehand."""
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Lead:
    """A likely continuation, how sure it is (0 to 1), and the share of earlier ones that was right."""

    tokens: list[int]
    confidence: float
    kept: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What one forward pass has read, row by row."""

    keys: list[int]
    before: list[int]
    """The token before the first one; -1 where there is none."""
    first: list[int]
    """The token of node 0."""
    drafts: Drafts | None
    """What was guessed below it."""
    paths: list[list[int]]
    """Nodes that were right."""
    hidden: Tensor
    """Last hidden states (rows, nodes, hidden)."""
    logits: Callable[[Tensor], Tensor]


class Drafter(Protocol):
    """Reads along and guesses: it must `propose`, and overrides what else it needs. Calls come from one thread."""

    watches: bool = False
    """Whether it wants `saw`."""
    computes: bool = False
    """Whether `propose` costs a forward pass of its own, so that asking in vain is not free."""

    def begin(self, key: int, prefix: Sequence[int]) -> None:
        """A request with this key has been let in."""

    def written(self, key: int, text: Sequence[int], new: int) -> None:
        """The last `new` tokens of this text were written; what stands before them is its end as known."""

    def ended(self, key: int) -> None:
        """It is gone."""

    @abstractmethod
    def propose(self, asks: Sequence[DraftAsk]) -> list[list[Guess]]:
        """For each ask up to `most` different tokens, the likeliest first. Asks of one call have paths of one length,
        but where a shape grows from a lead."""
        ...

    def lead(self, key: int, most: int) -> Lead | None:
        """A continuation found at once; None for drafters without such a source."""
        return None

    def saw(self, seen: Seen) -> None:
        """A forward pass has read this."""

    def learn(self) -> bool:
        """One step of training while there is nothing else to do; False where there is nothing to learn."""
        return False
