"""Length-weighted baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("opo", paper="On-Policy RL with Optimal Reward Baseline, arXiv:2505.23585", family="baseline")
@dataclass(frozen=True, slots=True)
class OPO:
    """A_i = r_i − Σ l_j r_j / Σ l_j, l = response length (OPO, arXiv:2505.23585, section 3).

    The variance-optimal baseline if squared score norms grow with length alone and do not depend on the content; then
    the SUM (not the mean) over actions is the gradient, so use it with averaging "token" or "fixed". Empty responses
    do not enter the baseline. For the exact optimum give `optimal_baseline` the gradient energies.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by, table.live & (table.loss_tokens > 0))
        return Advantage(leaf=centred(outcomes(table), group, "mean", "zero", table.loss_tokens.astype(np.float64)))
