"""Answers that a rescue found, imitated beside a group that is compared without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("rescued", paper="Cog-Rethinker, arXiv:2510.15979", family="shaping")
@dataclass(frozen=True, slots=True)
class Rescued:
    """Leaves with a score `rescued`: A = weight where right, left out where wrong. The others: GRPO among themselves,
    and left out where all have the same outcome, so that what a rescued prompt failed thins nothing out.

    Under a ratio to the weights at the start of the step, ∇ of weight · π/π_old is weight · ∇ log π in the first
    update: supervised fine-tuning on the rescued answers. Later updates stop where the clip does.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    weight: float = 0.1
    """λ of the imitation (reconstructed: the paper's is not public)."""
    correct: float = 0.5
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, group = outcomes(table), partition.leaf_groups(table, "tree")
        rescued = np.nan_to_num(table.score("rescued")[table.leaf]) > 0
        own = np.where(rescued, -1, group)
        plain = scaled(centred(reward, own, "mean"), reward, own, "std", ddof=self.ddof, eps=self.eps)
        right = rescued & (reward > self.correct)
        differs = partition.spread(-partition.lowest(-reward, own) - partition.lowest(reward, own), own) > 0
        return Advantage(leaf=np.where(rescued, self.weight * right, plain), counted=np.where(rescued, right, differs))
