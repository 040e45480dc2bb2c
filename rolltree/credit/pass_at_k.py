"""Reward the group for holding at least one success among k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Floats, Ints, Table


def miss_probability(failures: Ints, size: Ints, k: int) -> Floats:
    """C(failures, k) / C(size, k): chance that k draws without replacement are all failures."""
    out = np.ones(len(size))
    for i in range(k):
        out *= np.divide(np.maximum(failures - i, 0), size - i, out=np.zeros(len(size)), where=size > i)
    return out


@register("pass_at_k", paper="Pass@k Training, arXiv:2508.10751", family="group")
@dataclass(frozen=True, slots=True)
class PassAtK:
    """Advantage of taking part in a random subset of k leaves rewarded 1 if any of them succeeds.

    With N leaves of which F fail: R = 1 − C(F,k)/C(N,k), σ = √(R(1−R)), a success gets (1−R)/σ and a failure
    (1 − R − C(F−1,k−1)/C(N−1,k−1))/σ (the analytical form of arXiv:2508.10751). k = 1 is GRPO with ddof 0 and eps 0.
    Use it when coverage falls while accuracy rises; not when only the first answer counts. Groups smaller than k, or
    with R of 0 or 1, teach nothing. A leaf succeeds when its reward exceeds `threshold`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    k: int = 4
    """Size of the subsets, of which one right answer is enough."""
    threshold: float = 0.5
    """Rewards above this count as right."""
    scale: bool = True
    """Whether to divide by the standard deviation of the subsets' rewards."""
    by: partition.By = "tree"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise CreditError(f"pass_at_k needs k of at least 1, got {self.k}")

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by)
        success = outcomes(table) > self.threshold
        size = partition.count(group)
        failures = np.rint(partition.total((~success).astype(np.float64), group)).astype(np.int64)
        rate = 1 - miss_probability(failures, size, self.k)
        mates_fail = miss_probability(np.maximum(failures - 1, 0), np.maximum(size - 1, 0), self.k - 1)
        sigma = np.sqrt(rate * (1 - rate)) if self.scale else np.ones(len(rate))
        loss_mask = (size >= self.k) & (rate > 0) & (rate < 1)

        def over_sigma(x: Floats) -> Floats:
            return np.divide(x, sigma, out=np.zeros(len(x)), where=loss_mask)

        right, wrong = over_sigma(1 - rate), over_sigma(1 - rate - mates_fail)
        return Advantage(leaf=np.where(success, partition.spread(right, group), partition.spread(wrong, group)))
