"""Slow controllers of GDRO: adversaries that keep scores, and the price of a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.values import storable


@storable
@dataclass(slots=True)
class Exp3P:
    """Exponential weights over a fixed number of arms with uniform exploration (Auer et al. 2002, as GDRO uses them).

    Scores are moving averages, S ← (1 − beta) S + beta · what was seen, so they neither saturate nor outlive the
    policy they were measured on; beta = 1 keeps the last value only.
    """

    arms: int
    eta: float = 0.1
    gamma: float = 0.15
    beta: float = 0.1
    clip: float = 5.0
    scores: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.scores = self.scores or [0.0] * self.arms

    def observe(self, arm: int, value: float) -> None:
        """What choosing (or weighing) an arm showed."""
        self.scores[arm] += self.beta * (value - self.scores[arm])

    def weights(self, among: Sequence[int] | None = None) -> NDArray[np.float64]:
        """exp(η · clip(S)) of the arms asked for, not normalised."""
        chosen = range(self.arms) if among is None else among
        return np.exp(self.eta * np.clip([self.scores[i] for i in chosen], -self.clip, self.clip))

    def shares(self, among: Sequence[int] | None = None) -> NDArray[np.float64]:
        """(1 − γ) of the normalised weights, mixed with γ of the uniform distribution."""
        w = self.weights(among)
        return (1 - self.gamma) * w / w.sum() + self.gamma / len(w)


@storable
@dataclass(slots=True)
class DualPrice:
    """The price of one rollout: it rises while more are used than `goal`, and falls to 0 while fewer are."""

    rate: float = 0.01
    price: float = 0.0

    def observe(self, used: float, goal: float) -> None:
        """One step's mean rollouts per prompt against the goal."""
        self.price = max(0.0, self.price + self.rate * (used - goal))
