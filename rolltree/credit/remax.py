"""The greedy rollout as baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.outcome import outcomes, root_scores
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("remax", paper="ReMax, arXiv:2310.10505", family="baseline")
@dataclass(frozen=True, slots=True)
class ReMax:
    """A_i = r_i − r(greedy response) (ReMax, arXiv:2310.10505, eq. 7).

    Put the greedy rollout's reward on the prompt node as the score `greedy_reward`. Unbiased, since the baseline
    does not depend on the sample; one extra greedy decode per prompt. Works with groups of one. A poor fit where the
    greedy answer is far from typical (then the baseline adds variance).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "root:greedy_reward"})

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        middle = root_scores(table, "greedy_reward")[table.leaf_tree]
        return Advantage(leaf=np.where(table.live, outcomes(table) - middle, 0.0))
