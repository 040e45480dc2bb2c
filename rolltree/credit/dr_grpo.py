"""Group mean without a scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Singleton, centred
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("dr_grpo", paper="Understanding R1-Zero-Like Training, arXiv:2503.20783", family="group")
@dataclass(frozen=True, slots=True)
class DrGRPO:
    """A_i = r_i − mean r over the leaves of a group (Dr. GRPO, arXiv:2503.20783, section 3.2).

    The other half of Dr. GRPO, a constant divisor instead of each response's length, is the averaging "fixed". The
    gradient is (G−1)/G times that of leave-one-out: unbiased up to that factor. Prefer it to GRPO when all rewards
    share a scale.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"
    singleton: Singleton = "zero"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by)
        counted = partition.size(group) > 1 if self.singleton == "skip" else None
        return Advantage(leaf=centred(outcomes(table), group, "mean", self.singleton), counted=counted)
