"""Accuracy as a function of how much of the solution is given: the three-parameter curve SEELE fits per prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Curve:
    """f(p) = b + (1 − b) / (1 + exp(−k (p + μ))) at hint rate p (SEELE, arXiv 2509.06923)."""

    floor: float
    """b: accuracy without any insight."""
    slope: float
    """k."""
    shift: float
    """μ."""

    def __call__(self, rate: float) -> float:
        """Accuracy at a hint rate."""
        return self.floor + (1 - self.floor) / (1 + math.exp(-max(min(self.slope * (rate + self.shift), 50), -50)))

    def inverse(self, accuracy: float) -> float:
        """The hint rate with this accuracy, within [0, 1); 0 where the prompt is as easy without a hint."""
        if accuracy <= self.floor:
            return 0.0
        ratio = (1 - self.floor) / (accuracy - self.floor) - 1
        rate = -self.shift - math.log(max(ratio, 1e-12)) / self.slope
        return min(max(rate, 0.0), 1 - 1e-9)


def fit_curve(rates: Sequence[float], accuracies: Sequence[float], counts: Sequence[int]) -> Curve:
    """Weighted least squares on a grid that is refined three times around its best point.

    Equal rates are weighted by their rollouts, which is averaging them. With fewer points than parameters a weak pull
    towards b = 0, k = 8 and a middle at one half decides.
    """
    x, y, w = np.asarray(rates, float), np.asarray(accuracies, float), np.asarray(counts, float)
    centre, span = np.array([0.15, math.log(8), 0.5]), np.array([0.15, math.log(8), 0.75])
    for _ in range(4):
        axes = [np.linspace(c - s, c + s, m) for c, s, m in zip(centre, span, (5, 7, 11), strict=True)]
        b, k, middle = np.meshgrid(np.clip(axes[0], 0, 0.49), np.clip(axes[1], 0, math.log(64)), axes[2], indexing="ij")
        z = np.clip(np.exp(k)[..., None] * (x - middle[..., None]), -50, 50)
        error = (w * (b[..., None] + (1 - b[..., None]) / (1 + np.exp(-z)) - y) ** 2).sum(-1)
        error = error + 0.02 * ((b / 0.2) ** 2 + (k - math.log(8)) ** 2 + (middle - 0.5) ** 2)
        at = np.unravel_index(int(np.argmin(error)), error.shape)
        centre, span = np.array([b[at], k[at], middle[at]]), span / 3
    return Curve(float(centre[0]), float(math.exp(centre[1])), float(-centre[2]))
