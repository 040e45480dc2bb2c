"""Who goes on: survival probabilities from posteriors of success, with a fixed share surviving on average (ARRoL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import ControlError

Floats = NDArray[np.float64]
Rule = Literal["published", "signed", "random"]


@dataclass(frozen=True, slots=True)
class Survival:
    """p = clip(keep + δ + s·pull·(target − q), least, most), δ such that the mean of p is `keep` (arXiv 2603.24840).

    The published s is 1. As δ absorbs pull·target, `target` then acts through the clip alone and survivors shift
    towards failures whatever the pass rate: their mean success is E[q] − pull·Var(q)/keep. That balances groups solved
    more often than `target` and unbalances all others. "signed" takes s = sign(mean(q) − target): where failures are
    the rule, likely successes go on. "random" prunes as many by chance.
    """

    rule: Rule = "published"
    keep: float = 0.5
    target: float = 0.5
    pull: float = 0.5
    least: float = 0.1
    most: float = 0.9

    def __post_init__(self) -> None:
        if self.rule not in ("published", "signed", "random"):
            raise ControlError(f"arrol: no rule {self.rule!r}; there are published, signed and random")
        if not 0 < self.least <= self.keep <= self.most <= 1:
            raise ControlError(
                f"arrol: least={self.least}, keep={self.keep} and most={self.most} make no sense; give "
                "0 < least <= keep <= most <= 1"
            )

    def chances(self, posteriors: Sequence[float], groups: Sequence[str] | None = None) -> Floats:
        """Survival probabilities of rollouts that are compared, δ common to all, the sign by each one's own group."""
        q = np.asarray(posteriors, np.float64)
        if self.rule == "random" or not len(q):
            return np.full(len(q), self.keep)
        lean = self.pull * self._signs(q, groups) * (self.target - q)
        return np.clip(self.keep + self._shift(lean) + lean, self.least, self.most)

    def _signs(self, q: Floats, groups: Sequence[str] | None) -> Floats:
        if self.rule == "published":
            return np.ones(len(q))
        names = np.unique(["" for _ in q] if groups is None else list(groups), return_inverse=True)[1]
        means = np.bincount(names, q) / np.bincount(names)
        return np.where(means >= self.target, 1.0, -1.0)[names]

    def _shift(self, lean: Floats) -> float:
        """δ by bisection: the mean of the clipped probabilities rises with it from `least` to `most`."""
        low, high = self.least - self.keep - float(lean.max()), self.most - self.keep - float(lean.min())
        for _ in range(60):
            middle = (low + high) / 2
            mean = float(np.clip(self.keep + middle + lean, self.least, self.most).mean())
            low, high = (middle, high) if mean < self.keep else (low, middle)
        return (low + high) / 2
