"""Gates: where a finished stem may fork, and how wide (ECHO, arXiv 2602.02150).

A place must be uncertain by itself, lie in an uncertain stretch, and be more uncertain than what came before it, so
that a chain of equally uncertain tokens does not swallow the leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.signals import Floats, Signal, SignalError, check_threshold, rise, trailing_mean
from rolltree.tree import Node, Tree


class GateReading(NamedTuple):
    """Signals along a path, one number per policy action."""

    position: NDArray[np.int64]
    """Actions on the whole path before it, prompt included: what `hand.place` takes."""
    entropy: Floats
    confidence: Floats


@dataclass(frozen=True, slots=True)
class Gauge:
    """Which variants of entropy and confidence are read.

    Confidence is meant to fall with doubt. The paper's is the mean probability of the top k (`confidence:mass`, at most
    1/k); the released code's is −mean ln p over them, which is at least ln k and *rises* with doubt.
    """

    entropy: Signal = field(default_factory=lambda: Signal("entropy:top-normalised", 10))
    confidence: Signal = field(default_factory=lambda: Signal("confidence:mass", 5))

    def read(self, tree: Tree, leaf: Node) -> GateReading:
        """Both signals along the path to a leaf."""
        at: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        entropy, confidence = [np.zeros(0)], [np.zeros(0)]
        before = 0
        for node in tree.path(leaf):
            if node.role == "policy" and len(node):
                at.append(np.arange(before, before + len(node)))
                entropy.append(self.entropy.read(node))
                confidence.append(self.confidence.read(node))
            before += len(node)
        return GateReading(np.concatenate(at), np.concatenate(entropy), np.concatenate(confidence))


@dataclass(frozen=True, slots=True)
class Gate:
    """Opens at the first action i ≥ `depth` with H_i ≥ `entropy`, group confidence ≤ `confidence`, ΔH_i ≥ `rise`.

    ECHO's published thresholds (3.5, 1.2, 0.2) can never be met on the variants it computes; the first two defaults are
    ours, for peaked policies of small vocabularies. The width there is clip(round(least + α(H − H_low)/(H_high − H_low)
    − β(C − θ)/|θ|), 1, most), θ being the confidence threshold.
    """

    entropy: float = 0.7
    confidence: float = 0.195
    rise: float = 0.2
    depth: int = 4
    group: int = 4
    """Actions that group confidence is averaged over."""
    before: int = 4
    """Actions whose mean entropy ΔH compares with."""
    least: int = 1
    most: int = 4
    alpha: float = 2.0
    beta: float = 1.0
    low: float = 0.35
    """H_low of the width (1.0 beside a threshold of 3.5 as published)."""
    high: float = 1.4
    """H_high, which is not published (reconstructed)."""

    def check(self, gauge: Gauge, vocabulary: int) -> None:
        """Refuse thresholds that never or always fire on the variants in use."""
        check_threshold(gauge.entropy, ">=", self.entropy, vocabulary, where="the gate's entropy")
        check_threshold(gauge.confidence, "<=", self.confidence, vocabulary, where="the gate's group confidence")
        _, top = gauge.entropy.range(vocabulary)
        if self.rise > top:
            raise SignalError(
                f"the gate's rise of {self.rise:g} is never true: {gauge.entropy.kind} lies in [0, {top:.3g}]; "
                "choose a smaller rise"
            )
        if self.high <= self.low:
            raise SignalError(f"the gate's high={self.high:g} must be above low={self.low:g}, or no width is defined")

    def first(self, reading: GateReading) -> int | None:
        """Index of the first action where it opens."""
        group = trailing_mean(reading.confidence, self.group)
        open_ = (reading.entropy >= self.entropy) & (group <= self.confidence)
        open_ &= rise(reading.entropy, self.before) >= self.rise
        open_[: self.depth] = False
        return int(open_.argmax()) if open_.any() else None

    def width(self, reading: GateReading, index: int) -> int:
        """How many alternatives to force there."""
        group = float(trailing_mean(reading.confidence, self.group)[index])
        return self.formula(float(reading.entropy[index]), group)

    def formula(self, entropy: float, group: float) -> int:
        """The width at an entropy and a group confidence."""
        up = self.alpha * (entropy - self.low) / (self.high - self.low)
        down = self.beta * (group - self.confidence) / abs(self.confidence)
        return min(max(math.floor(self.least + up - down + 0.5), 1), self.most)
