"""From a head's score to a probability: how often rollouts with such a score came out right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.values import storable


@storable
@dataclass(slots=True)
class Calibrator:
    """Streaming counts of successes and failures by bins of the score (arXiv 2603.24840).

    P(success | bin) = π P(bin | 1) / (π P(bin | 1) + (1 − π) P(bin | 0)), with π the running share of successes and
    class-conditional frequencies smoothed by adding `smoothing` to each bin. `keep` multiplies all counts after each
    step: the head moves, so the same score comes to mean another probability. 1 never forgets, as published.
    """

    bins: int = 128
    smoothing: float = 1.0
    keep: float = 1.0
    right: list[float] = field(default_factory=list[float])
    wrong: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        if not self.right:
            self.right, self.wrong = [0.0] * self.bins, [0.0] * self.bins

    def observe(self, scores: Sequence[float], outcomes: Sequence[float], shares: Sequence[float]) -> None:
        """Count the outcomes of a step, by scores given before they were known."""
        self.right = [x * self.keep for x in self.right]
        self.wrong = [x * self.keep for x in self.wrong]
        for i, outcome, share in zip(self._places(scores), outcomes, shares, strict=True):
            self.right[i] += share * outcome
            self.wrong[i] += share * (1 - outcome)

    def posterior(self, scores: Sequence[float]) -> NDArray[np.float64]:
        """Probability of success for each score; 1/2 before any outcome."""
        successes, failures = sum(self.right), sum(self.wrong)
        if successes + failures <= 0:
            return np.full(len(scores), 0.5)
        prior = (successes + self.smoothing) / (successes + failures + 2 * self.smoothing)
        room, at = self.bins * self.smoothing, self._places(scores)
        one = prior * (np.array(self.right) + self.smoothing) / (successes + room)
        none = (1 - prior) * (np.array(self.wrong) + self.smoothing) / (failures + room)
        return (one / (one + none))[at]

    def _places(self, scores: Sequence[float]) -> list[int]:
        return [min(int(score * self.bins), self.bins - 1) for score in scores]
