"""Verdicts against a random member of the group, used as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.outcome import leaf_scores, outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Table


def judged_leaves(table: Table) -> Bools:
    """Live leaves that are not the reference (score `reference` = 1) of their group."""
    return table.live & ~(leaf_scores(table, "reference", missing=0.0) > 0.5)


@register("pairwise", paper="Writing-Zero / BRPO, arXiv:2506.00103", family="pairwise")
@dataclass(frozen=True, slots=True)
class Pairwise:
    """A_i = +1 if leaf i beat the reference under every vote, else −1; the reference is not trained on (BRPO).

    The judge writes score `versus` on each leaf, the share of votes won in [0, 1] over both orders, and `reference` =
    1 on the member it compared with. `split` says what a mixed verdict is worth: "loss" as published (a noisy judge
    then pushes everything down) or "zero". Groups with |Σ A| / G > `skew` are left out: their reference was an
    outlier. No mean and no std, on purpose.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "judged:versus"})
    split: Literal["loss", "zero"] = "loss"
    """What a verdict with votes on both sides is worth: a loss, as published, or zero."""
    skew: float = 0.6
    """Mean advantage above which a group is left out, because its reference was an outlier."""

    def __call__(self, table: Table) -> Advantage:
        """The verdict of every live leaf."""
        if self.split not in ("loss", "zero"):
            raise CreditError(f'pairwise: split is {self.split!r}; choose "loss" or "zero"')
        outcomes(table)
        judged = judged_leaves(table)
        won = leaf_scores(table, "versus", judged)
        lost = won <= 0 if self.split == "zero" else won < 1
        verdict = np.where(judged, np.where(won >= 1, 1.0, np.where(lost, -1.0, 0.0)), 0.0)
        group = partition.leaf_groups(table, "tree")
        tilt = np.abs(partition.total(verdict, group)) / np.maximum(partition.count(group), 1)
        fair = partition.spread(tilt, group) <= self.skew
        return Advantage(leaf=np.where(fair, verdict, 0.0), counted=judged & fair)
