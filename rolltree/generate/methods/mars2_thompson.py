"""Thompson sampling over scores: draw what a choice may be worth, take the largest draw.

MARS² (arXiv 2604.14564) decides by it whether a tree of attempts grows wider or deeper, where, and by whose hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed of a score before any was seen.

    `normal`: normal-inverse-gamma, σ² ~ InvGamma(ν/2, ντ²/2), μ ~ N(m, σ²/κ). Its published mean of 0 lies at the
    bottom of scores in [0, 1], so a choice that was tried looks better than one that was not. `beta`: Beta(½, ½).
    """

    kind: Literal["normal", "beta"] = "normal"
    mean: float = 0.0
    strength: float = 1.0
    """κ."""
    freedom: float = 1.0
    """ν."""
    spread: float = 0.1
    """τ²."""

    def draw(self, scores: Sequence[float], rng: np.random.Generator) -> float:
        """A sample of the mean score from the posterior."""
        seen = np.asarray(scores, np.float64)
        n = len(seen)
        if self.kind == "beta":
            total = float(np.clip(seen, 0.0, 1.0).sum())
            return float(rng.beta(0.5 + total, 0.5 + n - total))
        average = float(seen.mean()) if n else 0.0
        strength, freedom = self.strength + n, self.freedom + n
        mean = (self.strength * self.mean + n * average) / strength
        scatter = self.freedom * self.spread + float(((seen - average) ** 2).sum())
        scatter += self.strength * n / strength * (average - self.mean) ** 2
        variance = scatter / 2 / float(rng.gamma(freedom / 2))
        return float(rng.normal(mean, np.sqrt(variance / strength)))

    def best(self, choices: Sequence[Sequence[float]], rng: np.random.Generator) -> int:
        """Index of the choice whose draw is largest."""
        return int(np.argmax([self.draw(scores, rng) for scores in choices]))
