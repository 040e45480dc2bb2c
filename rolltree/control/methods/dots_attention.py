"""Pass rates of all prompts from a few measured ones: attention over references, calibrated on themselves (DOTS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolltree.control.features import likeness

Floats = NDArray[np.float64]
SHARPNESS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidates for the inverse temperature of the attention."""


@dataclass(frozen=True, slots=True)
class Attention:
    """p(q) = σ(a + b · logit(Σ softmax(β · cos(q, ref)) · label)): DOTS's predictor without its trained projections.

    β, a and b are fitted to the references, each predicted from the others (the paper trains its adapter and
    calibration offline on a frozen embedding model; fitting them to the references of the moment is reconstructed).
    """

    references: tuple[str, ...]
    labels: tuple[float, ...]
    sharpness: float
    offset: float
    slope: float

    def predict(self, texts: Sequence[str]) -> Floats:
        """Expected pass rates."""
        base = _attend(likeness(texts, self.references), np.asarray(self.labels), self.sharpness)
        return _sigmoid(self.offset + self.slope * _logit(base))


def fit_attention(references: Sequence[str], labels: Sequence[float]) -> Attention:
    """Fit to references with measured pass rates; with fewer than three it predicts their mean."""
    y = np.asarray(labels, np.float64)
    like = likeness(references, references)
    np.fill_diagonal(like, -np.inf)
    best = (np.inf, SHARPNESS[0], 0.0, 1.0)
    for sharpness in SHARPNESS if len(y) > 2 else ():
        x = _logit(_attend(like, y, sharpness))
        offset, slope = _logistic(x, y)
        loss = _loss(offset + slope * x, y)
        if loss < best[0] - 1e-12:
            best = (loss, sharpness, offset, slope)
    return Attention(tuple(references), tuple(float(v) for v in y), *best[1:])


def _attend(like: Floats, labels: Floats, sharpness: float) -> Floats:
    scores = sharpness * like
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ labels / weights.sum(axis=1)


def _logistic(x: Floats, y: Floats, ridge: float = 1.0, steps: int = 30) -> tuple[float, float]:
    """Offset and slope that minimise the cross-entropy of shares y plus ridge · ((slope − 1)² + offset²) / 2."""
    design = np.stack([np.ones(len(x)), x], 1)
    at = np.array([0.0, 1.0])
    for _ in range(steps):
        p = _sigmoid(design @ at)
        gradient = design.T @ (p - y) + ridge * (at - np.array([0.0, 1.0]))
        curvature = (design * (p * (1 - p))[:, None]).T @ design + ridge * np.eye(2)
        move = np.linalg.solve(curvature, gradient)
        at = at - np.clip(move, -2, 2)
        if np.abs(move).max() < 1e-9:
            break
    return float(at[0]), float(at[1])


def _loss(logits: Floats, y: Floats) -> float:
    return float(np.mean(np.logaddexp(0, logits) - y * logits))


def _logit(p: Floats) -> Floats:
    clipped = np.clip(p, 0.01, 0.99)
    return np.log(clipped / (1 - clipped))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(x, -50, 50)))
