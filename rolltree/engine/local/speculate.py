"""Speculative decoding: guess several tokens, read them in one forward pass, keep those that would have been drawn.

Every request draws with a stream of its own: the number that decides token n depends on the request and on n alone. So
the engine draws what it would have drawn anyway, from the logits of the same positions, and a guess is kept exactly
where it equals that draw. The tokens, and thus the sampling distribution, are those of decoding one token at a time, up
to the rounding of a wider matrix product. For guesses made without chance, no other rule keeps more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.local.batch import DecodeBatch
from rolltree.engine.local.drafts import ORDERS, AllTexts, Drafter, OwnText
from rolltree.engine.local.run import LocalRun
from rolltree.engine.protocol import EngineError

Ints = NDArray[np.int64]

DRAFTERS: dict[str, Callable[[], Drafter]] = {"ngram": OwnText, "suffix": AllTexts}


@dataclass(frozen=True, slots=True)
class Speculation:
    """How to guess ahead."""

    drafter: str
    """ngram: from the request's own text. suffix: from all texts of the engine, earlier training steps included."""
    most: int = 8
    """Most tokens guessed at once."""
    least: float = 0.3
    """A guess goes on while all of it is right with at least this estimated probability."""
    rows: int = 16
    """It guesses only while so many requests or fewer are decoded: with more, the width is used already."""

    def __post_init__(self) -> None:
        if self.drafter not in DRAFTERS:
            raise EngineError(f"unknown drafter {self.drafter!r} of speculate; it knows {', '.join(DRAFTERS)}")
        if not 1 <= self.most <= 64:
            raise EngineError(f"speculate guesses {self.most} tokens at once; it must be from 1 to 64")

    @classmethod
    def of(cls, text: str) -> Speculation | None:
        """Read `ngram`, `suffix` or `suffix:6`; "off" is None."""
        name, colon, most = text.partition(":")
        if name == "off" and not colon:
            return None
        if colon and not most.isdigit():
            raise EngineError(
                f"speculate is {text!r}; after the colon stands the most tokens guessed at once, as a number"
            )
        return cls(name, int(most)) if most else cls(name)


@dataclass(slots=True)
class SpeculationCounts:
    """What came of it so far."""

    forwards: int = 0
    """Decoding steps, guessed in or not."""
    rows: int = 0
    """Rows of those steps: the tokens that would have come without guessing."""
    drafted: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        """Share of guesses that were right; 0 where nothing was guessed."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def per_row(self) -> float:
        """Tokens per request and decoding step; 1 without guessing."""
        return 1 + self.accepted / self.rows if self.rows else 1.0


@dataclass(frozen=True, slots=True)
class Drafts:
    """Guesses for the rows of a batch, padded on the right."""

    tokens: Ints
    """(rows, widest)."""
    count: Ints
    """How many of each row are guesses."""


_WINDOW = 256
"""Guesses after which it is asked whether they pay."""
_REST = 64
"""Steps without guessing where they do not."""


@dataclass(slots=True)
class Speculator:
    """Guesses for a batch, follows what became of it, and rests where too few guesses are right.

    When it rests depends on counts alone, never on a clock, so a seeded run takes the same steps again.
    """

    how: Speculation
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)
    _drafter: Drafter = field(init=False)
    _names: dict[LocalRun, tuple[int, int]] = field(default_factory=dict[LocalRun, tuple[int, int]])
    """Of each run inside: its key, and how much of its text is known to the drafter."""
    _next: int = 0
    _recent: tuple[int, int] = (0, 0)
    _rest: int = 0

    def __post_init__(self) -> None:
        self._drafter = DRAFTERS[self.how.drafter]()

    def draft(self, batch: DecodeBatch) -> Drafts | None:
        """Guesses for all rows; None where there are none."""
        rows = len(batch)
        self.counts.forwards += 1
        self.counts.rows += rows
        self._follow(batch)
        if rows > self.how.rows:
            return None
        if self._rest:
            self._rest -= 1
            return None
        guesses = [self._of_row(batch, row) for row in range(rows)]
        widest = max(map(len, guesses), default=0)
        if not widest:
            return None
        tokens, count = np.zeros((rows, widest), np.int64), np.zeros(rows, np.int64)
        for row, guess in enumerate(guesses):
            tokens[row, : len(guess)], count[row] = guess, len(guess)
        return Drafts(tokens, count)

    def judge(self, drafted: int, accepted: int) -> None:
        """How many guesses of a step were right."""
        self.counts.drafted += drafted
        self.counts.accepted += accepted
        tried, right = self._recent[0] + drafted, self._recent[1] + accepted
        if tried >= _WINDOW:
            if right < tried * self.how.least:
                self._rest = _REST
            tried = right = 0
        self._recent = tried, right

    def gone(self, run: LocalRun, text: Ints) -> None:
        """A run has left the batch with this text, prefix included."""
        if (known := self._names.pop(run, None)) is not None:
            key, length = known
            if len(text) > length:
                self._drafter.written(key, text[max(0, length - ORDERS[0]) :].tolist(), len(text) - length)
            self._drafter.ended(key)

    def clear(self) -> None:
        """Nobody is inside any more."""
        for key, _ in self._names.values():
            self._drafter.ended(key)
        self._names = {}

    def _follow(self, batch: DecodeBatch) -> None:
        """Tell the drafter of who is new and of what was written since the last step."""
        for row, run in enumerate(batch.runs):
            length = int(batch.length[row])
            known = self._names.get(run)
            if known is None:
                known = self._next, length
                self._next += 1
                self._drafter.begin(known[0], batch.ids[row, :length].tolist())
            elif length > known[1]:
                reach = max(0, known[1] - ORDERS[0])
                self._drafter.written(known[0], batch.ids[row, reach:length].tolist(), length - known[1])
            self._names[run] = known[0], length

    def _of_row(self, batch: DecodeBatch, row: int) -> list[int]:
        run, length = batch.runs[row], int(batch.length[row])
        most = min(self.how.most, int(batch.limit[row]) - length - 1)
        if most < 1 or run.hidden:  # a state is reported of the token that was read last
            return []
        tail = batch.ids[row, max(0, length - ORDERS[0]) : length].tolist()
        return self._drafter.draft(self._names[run][0], tail, most, self.how.least)
