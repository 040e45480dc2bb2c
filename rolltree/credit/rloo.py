"""Leave one out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Singleton, centred
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("rloo", paper="Back to Basics, arXiv:2402.14740", family="group")
@dataclass(frozen=True, slots=True)
class RLOO:
    """A_i = r_i − mean of the other rewards of the group (REINFORCE leave-one-out, arXiv:2402.14740, eq. 8).

    The baseline does not contain the leaf's own reward, so the gradient is exactly unbiased for independent leaves.
    Leaves of a forked tree are not independent: siblings carry information about a shared prefix.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"
    singleton: Singleton = "zero"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by)
        counted = partition.size(group) > 1 if self.singleton == "skip" else None
        return Advantage(leaf=centred(outcomes(table), group, "leave_one_out", self.singleton), counted=counted)
