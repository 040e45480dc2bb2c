"""Nested subgroups: compare a leaf with everybody, then with those that share more and more of its prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.backup import backup, forks
from rolltree.credit.baselines import whitened
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("nested", paper="TreePO, arXiv:2508.17445", family="tree")
@dataclass(frozen=True, slots=True)
class Nested:
    """A_i = mean over fork ancestors n of leaf i (the root always) of R_i − mean R(leaves below n) (TreePO).

    `mix="size"` weighs each subgroup by its size. Released code then whitens over all tokens of the batch (`whiten`),
    without a per-group scale. It repeats a subgroup once per segment in which nothing forked; here a set of leaves
    counts once, so cutting a run changes nothing. Better than a flat group where early choices decide; still one
    number per leaf, so it cannot single out a token (`node_delta` can). With forks at the root only: the group mean.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    mix: Literal["average", "size"] = "average"
    """Whether the groups of a leaf's ancestors weigh alike, or by their size."""
    drop_equal: bool = False
    """Leave out subgroups (but the root) whose rewards are all equal."""
    whiten: bool = True

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        if self.mix not in ("average", "size"):
            raise CreditError(f'nested: mix is {self.mix!r}; choose "average" or "size"')
        own = centred(outcomes(table), partition.leaf_groups(table, "tree"), "mean")
        mean = np.nan_to_num(backup(table, own, "leaf_mean"))
        use = forks(table)
        if self.drop_equal:
            use &= backup(table, own, "any") > -backup(table, -own, "any")
        mass = table.below(table.live.astype(np.float64))
        weight = np.where(use, mass if self.mix == "size" else 1.0, 0.0)
        total = table.down(weight)[table.leaf]
        shared = table.down(weight * mean)[table.leaf]
        leaf = own - np.divide(shared, total, out=np.zeros(len(own)), where=total > 0)
        leaf[~table.live] = 0.0
        if self.whiten:
            leaf = whitened(table, leaf, "tokens", ddof=1, eps=1e-8, place="inside")
        return Advantage(leaf=leaf)
