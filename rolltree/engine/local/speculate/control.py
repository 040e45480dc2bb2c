"""How far to guess, and whether at all: a fixed shape that rests where it is wrong, or a bandit that measures."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rolltree.engine.local.speculate.shapes import GuessShape

_WINDOW = 256
"""Guesses after which it is asked whether they pay."""
_REST, _LONGEST = 64, 2048
"""Steps without guessing where they do not; twice as many each time they still do not, up to the longest."""


class GuessControl(Protocol):
    """Chooses the shape of every step."""

    def shape(self, rows: int) -> GuessShape | None:
        """The shape for a step over so many requests; None = no guesses."""
        ...

    def judge(self, tried: int, accepted: int, tokens: int, *, clean: bool) -> None:
        """What became of the step: depth guessed, guesses kept, tokens written; `clean` where it read no prompt."""
        ...


@dataclass(slots=True)
class Resting:
    """One shape up to so many rows. Where too few guesses are right it rests for a while.

    Depends on counts alone, never on a clock, so a seeded run takes the same steps again.
    """

    of: GuessShape
    least: float
    rows: int
    _recent: tuple[int, int] = (0, 0)
    _left: int = 0
    _rest: int = _REST

    def shape(self, rows: int) -> GuessShape | None:
        """See `GuessControl`."""
        if rows > self.rows:
            return None
        if self._left:
            self._left -= 1
            return None
        return self.of

    def judge(self, tried: int, accepted: int, tokens: int, *, clean: bool) -> None:
        """See `GuessControl`."""
        tried, right = self._recent[0] + tried, self._recent[1] + accepted
        if tried >= _WINDOW:
            if right < tried * self.least:
                self._left, self._rest = self._rest, min(2 * self._rest, _LONGEST)
            else:
                self._rest = _REST
            tried = right = 0
        self._recent = tried, right


@dataclass(slots=True)
class Bandit:
    """The arm with the best median of tokens per second, found anew for every size of the batch (TLT's BEG-MAB).

    ε-greedy over the arms that a batch allows: guesses × rows stay within `most`. An arm that was never tried comes
    first, steps that read prompts do not count, and a median is not moved by a step that was interrupted. One arm is
    not to guess, so it switches itself off where it loses. Which arm is played depends on this machine; the samples
    do not.
    """

    arms: Sequence[GuessShape | None]
    epsilon: float = 0.1
    window: int = 200
    most: int = 2048
    edges: Sequence[int] = (1, 2, 5, 21)
    """Batch sizes at which another bandit begins."""
    clock: Callable[[], float] = time.perf_counter
    pulls: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """By (bucket, arm)."""
    _chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    _rewards: dict[tuple[int, int], deque[float]] = field(default_factory=dict[tuple[int, int], deque[float]])
    _playing: tuple[tuple[int, int], float] | None = None

    def shape(self, rows: int) -> GuessShape | None:
        """See `GuessControl`."""
        bucket = sum(rows >= edge for edge in self.edges)
        allowed = [i for i, arm in enumerate(self.arms) if arm is None or arm.nodes * rows <= self.most]
        arm = self._pick(bucket, allowed)
        self.pulls[bucket, arm] = self.pulls.get((bucket, arm), 0) + 1
        self._playing = (bucket, arm), self.clock()
        return self.arms[arm]

    def judge(self, tried: int, accepted: int, tokens: int, *, clean: bool) -> None:
        """See `GuessControl`."""
        if self._playing is not None and clean:
            place, began = self._playing
            kept = self._rewards.setdefault(place, deque(maxlen=self.window))
            kept.append(tokens / max(self.clock() - began, 1e-9))
        self._playing = None

    def best(self, rows: int) -> int:
        """The arm with the best median so far; an arm that was never judged before all others."""
        bucket = sum(rows >= edge for edge in self.edges)
        return self._best(bucket, range(len(self.arms)))

    def _pick(self, bucket: int, allowed: Sequence[int]) -> int:
        if self._chance.random() < self.epsilon:
            return int(self._chance.choice(allowed))
        return self._best(bucket, allowed)

    def _best(self, bucket: int, allowed: Sequence[int]) -> int:
        def worth(arm: int) -> float:
            rewards = self._rewards.get((bucket, arm))
            return statistics.median(rewards) if rewards else float("inf")

        return max(allowed, key=worth)
