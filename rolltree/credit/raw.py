"""The outcome itself, without a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.advantage import Advantage
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("raw", paper="REINFORCE (Williams 1992)", family="baseline")
@dataclass(frozen=True, slots=True)
class Raw:
    """A_i = r_i (REINFORCE, Williams 1992): unbiased, and the noisiest of all.

    For imitation, where an answer's outcome is how much of it is to be learned, and to see what a baseline saves. Not
    for rollouts with positive rewards only: everything sampled is pushed up.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})

    def __call__(self, table: Table) -> Advantage:
        """The outcome of every live leaf."""
        return Advantage(leaf=outcomes(table))
