"""Ratios against the distribution that sampled, whatever the surrogate: the proximal policy of stale data is its
author."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from rolltree.objective.batch import Batch, Level, need
from rolltree.objective.ratio import behaviour


@dataclass(frozen=True, slots=True)
class Bypass:
    """The batch with log π_sampled in the place of log π_old; actions without one keep π_old.

    On fresh rollouts at temperature 1 the two are the same policy. On stale ones the surrogate's ratio then corrects
    for the staleness as well as for the updates of the step, and its window holds both ("rollout" proximal policy,
    AReaL).
    """

    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch around another centre; no metrics."""
        centre, _ = behaviour(batch.old, need(batch.sampled, "sampled", "a bypass of the proximal policy"))
        return replace(batch, old=centre), {}
