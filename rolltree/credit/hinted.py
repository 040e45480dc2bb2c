"""Hinted and unhinted rollouts compared within their own arm, then weighed by how much the hint helped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Table


def hinted_leaves(table: Table) -> Bools:
    """Leaves with a hint node (role "hint") on their path."""
    hint = np.fromiter((n.role == "hint" for n in table.nodes), np.float64, len(table.nodes))
    return table.down(hint)[table.leaf] > 0


@register("hinted", paper="ADHint, arXiv:2512.13095", family="shaping")
@dataclass(frozen=True, slots=True)
class Hinted:
    """A = (r − arm mean)/(arm std + eps), × w for unhinted successes and hinted failures, × 1/w for hinted successes.

    w = 1 + D_n − D_h with D the failure rate of the unhinted and the hinted arm (ADHint; the form of w is
    reconstructed), at least `floor`. Successes count where the advantage is positive. A prompt with one arm gets that
    arm's group advantage. Hint actions themselves stay out of it unless they train; published masking of hint tokens
    under negative advantages is the objective's.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    correct: float = 0.5
    floor: float = 0.1
    """Least weight between the two arms."""
    reweigh: bool = True
    """Whether rewards of the arms are weighed by how much the hint helped."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, hinted = outcomes(table), hinted_leaves(table)
        arm = np.where(table.live, 2 * table.leaf_tree + hinted, -1)
        leaf = scaled(centred(reward, arm, "mean"), reward, arm, "std", ddof=self.ddof, eps=self.eps)
        if not self.reweigh:
            return Advantage(leaf=leaf)
        missed = np.full(2 * len(table.trees), np.nan)
        found = partition.mean((reward <= self.correct).astype(np.float64), arm)
        size = partition.count(arm)
        missed[: len(found)] = np.where(size > 0, found, np.nan)
        gap = np.nan_to_num(missed[0::2] - missed[1::2])
        weight = np.maximum(1 + gap, self.floor)[table.leaf_tree]
        factor = np.where(hinted & (leaf > 0), 1 / weight, np.where(hinted ^ (leaf > 0), weight, 1.0))
        return Advantage(leaf=leaf * factor)
