"""Which paths of a search go on: REBASE's counts, clusters of steps, and ETS's program over both.

ETS (arXiv 2502.13575) keeps the set of paths that maximises what REBASE would give them, minus the share of the tree
they occupy, plus the share of meanings they cover. It is an integer program over the live paths of one prompt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EXACT = 14
"""Up to so many live paths all subsets are tried; beyond, a local search by adding, dropping and swapping."""


def rebase(scores: Sequence[float], width: int, temperature: float = 0.2) -> list[int]:
    """How many ways each path goes on: ceil(W·e^{s/T}/Σ remaining), best first, what was given subtracted (REBASE).

    Equal scores are served in their order, so ties favour earlier paths.
    """
    raw = np.asarray(scores, np.float64) / temperature
    weight = np.exp(raw - raw.max())
    out = [0] * len(weight)
    left, rest = width, float(weight.sum())
    for i in np.argsort(-raw, kind="stable"):
        if left <= 0:
            break
        out[i] = min(left, int(np.ceil(left * weight[i] / rest - 1e-12))) if rest > 0 else left
        left -= out[i]
        rest -= float(weight[i])
    return out


def clusters(vectors: NDArray[np.floating], cut: float = 0.05) -> list[int]:
    """Average-linkage clusters by cosine distance: the two nearest join while they are within `cut`."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    distance = 1.0 - unit @ unit.T
    groups = [[i] for i in range(len(unit))]
    while len(groups) > 1:
        pairs = [(float(distance[np.ix_(a, b)].mean()), i, j)
                 for i, a in enumerate(groups) for j, b in enumerate(groups) if i < j]  # fmt: skip
        nearest, i, j = min(pairs)
        if nearest > cut:
            break
        groups[i] += groups.pop(j)
    label = [0] * len(unit)
    for number, group in enumerate(groups):
        for i in group:
            label[i] = number
    return label


@dataclass(frozen=True, slots=True)
class Program:
    """Keep x of n live paths: max Σ share·x − λ_b·(cost of all nodes kept)/(cost of all) + λ_d·(clusters covered)/K.

    A node above the paths is kept if any path through it is. At least one path is kept.
    """

    share: Floats
    """What REBASE gives each path, summing to 1."""
    above: Sequence[Sequence[Hashable]]
    """Ids of the nodes above each path."""
    cost: Sequence[float]
    """Of each path's own last node."""
    cost_above: Sequence[Sequence[float]]
    cluster: Sequence[int]
    """Of each path's last step."""
    economy: float = 1.0
    """λ_b."""
    cover: float = 1.5
    """λ_d."""

    def values(self, chosen: Bools) -> Floats:
        """The objective of each row of `chosen` (subsets × paths)."""
        names = {name: column for column, name in enumerate(dict.fromkeys(n for ids in self.above for n in ids))}
        through, price = np.zeros((len(self.share), len(names))), np.zeros(len(names))
        for i, (ids, costs) in enumerate(zip(self.above, self.cost_above, strict=True)):
            for name, cost in zip(ids, costs, strict=True):
                through[i, names[name]], price[names[name]] = 1.0, cost
        covers = np.zeros((len(self.share), max(self.cluster) + 1))
        covers[np.arange(len(self.share)), list(self.cluster)] = 1.0
        pick = chosen.astype(np.float64)
        own = np.asarray(self.cost, np.float64)
        paid = (((pick @ through) > 0) @ price + pick @ own) / max(float(price.sum() + own.sum()), 1e-12)
        covered = ((pick @ covers) > 0).sum(1) / covers.shape[1]
        return pick @ self.share - self.economy * paid + self.cover * covered

    def solve(self) -> Bools:
        """The best set: exact up to `EXACT` paths, beyond that a set no single addition, removal or swap improves."""
        n = len(self.share)
        if n <= EXACT:
            subsets = np.array(list(product((False, True), repeat=n)), np.bool_)[1:]
            return subsets[int(self.values(subsets).argmax())]
        return self.local()

    def local(self) -> Bools:
        """Hill climbing from the best single path and from all of them; the better end."""
        n = len(self.share)
        single = np.eye(n, dtype=np.bool_)
        starts = (single[int(self.values(single).argmax())], np.ones(n, np.bool_))
        ends = np.array([self._climb(start) for start in starts])
        return ends[int(self.values(ends).argmax())]

    def _climb(self, chosen: Bools) -> Bools:
        best = float(self.values(chosen[None])[0])
        while True:
            near = self._neighbours(chosen)
            found = self.values(near)
            top = int(found.argmax())
            if found[top] <= best + 1e-12:
                return chosen
            chosen, best = near[top], float(found[top])

    def _neighbours(self, chosen: Bools) -> Bools:
        n = len(chosen)
        flips = chosen ^ np.eye(n, dtype=np.bool_)
        inside, outside = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        swaps = np.repeat(chosen[None], len(inside) * len(outside), axis=0)
        for row, (i, j) in enumerate(product(inside, outside)):
            swaps[row, i], swaps[row, j] = False, True
        near = np.concatenate([flips, swaps])
        return near[near.any(axis=1)]
