"""Signals: numbers per token that decide where to fork, prune and stop. Every signal names its variant.

The same word means six things in released code (`entropy` over the full vocabulary, over the top K raw, over the top K
renormalised, …), and a threshold for one variant may be unreachable on another: ECHO's released gate asks for an
entropy of 3.5 on the top 10, whose renormalised entropy never exceeds ln 10 = 2.30, and for a confidence below 1.2 on a
quantity that is at least ln 5 = 1.61. So a signal carries its range, and `check_threshold` refuses a dead rule.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.errors import RolltreeError
from rolltree.tree.node import FloatArray, Node

Floats = NDArray[np.float64]
Kind = Literal["entropy:full", "entropy:top", "entropy:top-normalised", "confidence:mass", "confidence:neglog"]


class SignalError(RolltreeError, ValueError):
    """A signal that cannot be read here, or a threshold that can never fire on it."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A per-token signal and its variant; `k` is the number of alternatives the top-K variants read.

    - `entropy:full`: −Σ p ln p over the vocabulary, in [0, ln V].
    - `entropy:top`: −Σ p ln p over the K most likely, not renormalised, in [0, ln K] (K/e for K ≤ 2).
    - `entropy:top-normalised`: the same after renormalising over K, in [0, ln K].
    - `confidence:mass`: mean probability of the K most likely, in [1/V, 1/K].
    - `confidence:neglog`: −mean ln p over the K most likely, in [ln K, ∞): *larger is less certain*.
    """

    kind: Kind
    k: int = 0

    def __post_init__(self) -> None:
        if self.kind != "entropy:full" and self.k < 1:
            raise SignalError(
                f"signal {self.kind} needs k ≥ 1 alternatives, got {self.k}; e.g. Signal({self.kind!r}, 10)"
            )

    @property
    def needs(self) -> frozenset[str]:
        """What the engine must report."""
        return frozenset({"entropy:full"} if self.kind == "entropy:full" else {f"top:{self.k}"})

    @property
    def want(self) -> frozenset[str]:
        """What to ask of the hand when extending."""
        return frozenset({"entropy"} if self.kind == "entropy:full" else {f"top:{self.k}"})

    def range(self, vocabulary: int) -> tuple[float, float]:
        """Smallest and largest value the signal can take."""
        match self.kind:
            case "entropy:full":
                return 0.0, math.log(vocabulary)
            case "entropy:top":  # Σp may be below 1: for K < e the maximum of s·ln K − s·ln s is inside
                return 0.0, math.log(self.k) if self.k > math.e else self.k / math.e
            case "entropy:top-normalised":
                return 0.0, math.log(min(self.k, vocabulary))
            case "confidence:mass":
                return 1.0 / vocabulary, 1.0 / self.k
            case "confidence:neglog":
                return math.log(self.k), math.inf

    def read(self, node: Node) -> Floats:
        """The signal at each action of a node."""
        if self.kind == "entropy:full":
            if node.entropy is None:
                raise SignalError(f"node {node.id} has no entropy; extend it with want={{'entropy'}}")
            return node.entropy.astype(np.float64)
        if node.top is None or node.top.logp.shape[1] < self.k:
            raise SignalError(
                f"node {node.id} does not hold its top {self.k} alternatives; ask for want={{'top:{self.k}'}}"
            )
        return of_top(self.kind, node.top.logp[:, : self.k])


LEAST_ENTROPY = 1e-8
"""Smallest entropy that is told from none, where its logarithm is taken (HAPO, arXiv 2509.16591)."""


def log_entropy(entropy: NDArray[np.floating]) -> Floats:
    """Its logarithm, bounded below."""
    return np.log(np.maximum(entropy.astype(np.float64), LEAST_ENTROPY))


def asked(*wants: Collection[str]) -> frozenset[str]:
    """One request for extras out of several: of all alternatives asked for, the most."""
    names = {name for want in wants for name in want}
    most = max((int(name[4:]) for name in names if name.startswith("top:")), default=0)
    plain = {name for name in names if not name.startswith("top:")}
    return frozenset(plain | ({f"top:{most}"} if most else set()))


def features(want: Collection[str]) -> frozenset[str]:
    """The engine's features behind the extras of a request."""
    return frozenset("entropy:full" if name == "entropy" else name for name in want)


def of_top(kind: Kind, logp: NDArray[np.floating]) -> Floats:
    """A top-K signal from log-probs of shape (actions, K) on the scale of the full vocabulary."""
    lp = logp.astype(np.float64)
    p = np.exp(lp)
    finite = np.where(np.isfinite(lp), lp, 0.0)
    match kind:
        case "entropy:top":
            return -(p * finite).sum(1)
        case "entropy:top-normalised":
            total = p.sum(1, keepdims=True)
            share = p / total
            return -(share * np.where(share > 0, np.log(np.where(share > 0, share, 1.0)), 0.0)).sum(1)
        case "confidence:mass":
            return p.mean(1)
        case "confidence:neglog":
            return -lp.mean(1)
        case "entropy:full":
            raise SignalError("entropy:full is reported by the engine, not computed from the top alternatives")


def check_threshold(signal: Signal, rule: Literal[">=", "<="], value: float, vocabulary: int, *, where: str) -> None:
    """Refuse a comparison that can never be true (or is always true) on this variant of the signal."""
    low, high = signal.range(vocabulary)
    dead = value > high if rule == ">=" else value < low
    idle = value <= low if rule == ">=" else value >= high
    if dead or idle:
        what = "never" if dead else "always"
        name = signal.kind + (f" over {signal.k}" if signal.k else "")
        raise SignalError(
            f"{where}: {name} {rule} {value:g} is {what} true: the signal lies in "
            f"[{low:.3g}, {high:.3g}]; choose a value inside, or another variant"
        )


def step_logps(path: Sequence[Node]) -> list[FloatArray]:
    """Log-probs of each step of the policy's on a path; what an environment or a method answered is no step."""
    return [n.logp for n in path if n.role == "policy" and n.logp is not None and len(n)]


def mean_logp(path: Sequence[Node]) -> float:
    """Mean log-prob of the last step on a path, over the policy's own tokens: behind an environment's answer, the turn
    that it answers."""
    steps = step_logps(path)
    if not steps:
        raise SignalError(
            f"node {path[-1].id} stands below no log-probs of the policy's; take an engine that reports them"
        )
    return float(steps[-1].mean())


def trailing_mean(values: Floats, window: int) -> Floats:
    """Mean of the last `window` values up to and including each (fewer at the start)."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / np.maximum(end - start, 1)


def rise(values: Floats, window: int) -> Floats:
    """Each value minus the mean of the `window` values before it; 0 where nothing precedes (ECHO's ΔH)."""
    if len(values) == 0:
        return values
    before = np.concatenate([[values[0]], trailing_mean(values, window)[:-1]])
    return values - before


def head_sum(values: Floats, window: int) -> float:
    """Sum over the first `window` values after a boundary (ARPO's reading of a round)."""
    return float(values[:window].sum())


def divergence(logp: NDArray[np.floating], ids: NDArray[np.integer], embedding: NDArray[np.floating]) -> Floats:
    """Semantic divergence of the alternatives: 1 − Σ_ij p_i p_j cos(e_i, e_j), renormalised over them; in [0, 2].

    ROSE (arXiv 2601.05053) scores −Σ_{i≠j} p_i p_j cos; with non-negative cosines that is never positive, so the
    largest entropy × divergence sits at certain tokens. This form keeps the intent: 0 for synonyms, large for real
    alternatives.
    """
    p = np.exp(logp.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    vectors = embedding[ids].astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    mean = (p[..., None] * vectors).sum(1)
    return 1.0 - (mean**2).sum(-1)


def similarity(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """1 − normalised edit distance of two token runs: 1 = the same, 0 = nothing in common (LATR's test)."""
    longest = max(len(a), len(b))
    return 1.0 if longest == 0 else 1.0 - edit_distance(a, b) / longest


def edit_distance(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    """Levenshtein distance; one vectorised sweep per row."""
    if len(a) == 0 or len(b) == 0:
        return max(len(a), len(b))
    row = np.arange(len(b) + 1)
    steps = np.arange(len(b) + 1)
    for i, token in enumerate(a, 1):
        best = np.empty_like(row)
        best[0] = i
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (b != token))
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])
