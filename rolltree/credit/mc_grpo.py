"""Median instead of mean, with the pivot left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import ROUNDING, baseline, scaled, spread_of
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Floats, Ints, Table


def pivots(values: Floats, group: Ints, middle: Floats, rank: Ints) -> Bools:
    """The member of lowest rank of each group that equals its middle value."""
    at = np.flatnonzero((group >= 0) & (values == middle))
    at = at[np.argsort(rank[at])]
    _, first = np.unique(group[at], return_index=True)
    out = np.zeros(len(values), np.bool_)
    out[at[first]] = True
    return out


@register("mc_grpo", paper="MC-GRPO, arXiv:2601.22582", family="group")
@dataclass(frozen=True, slots=True)
class MCGRPO:
    """A_i = (r_i − median) / (MAD + eps), the median member left out of the update (MC-GRPO, arXiv:2601.22582).

    Sample G + 1 leaves with G even. For small groups of multi-level rewards fewer leaves get the wrong sign than with
    a mean; at large groups, and with 0/1 rewards (where a mean never has the wrong sign), it does not help. With 0/1
    rewards the MAD is always 0 and the released eps of 1e-3 gives advantages of ±1000: `flat` says what to divide by
    there, "one" (default here), "std", or "eps" as released. Even groups take the lower middle value, as released.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    eps: float = 1e-3
    flat: Literal["one", "std", "eps"] = "one"
    """What to divide by where the deviation is 0: one, the standard deviation, or eps as released."""
    drop_pivot: bool = True
    """Whether the median rollout is left out of the update."""
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf but the pivots."""
        if self.flat not in ("one", "std", "eps"):
            raise CreditError(f'mc_grpo: flat is {self.flat!r}; choose "one", "std" or "eps"')
        reward, group = outcomes(table), partition.leaf_groups(table, self.by)
        middle = baseline(reward, group, "lower_median")
        away = np.where(group >= 0, reward - middle, 0.0)
        deviation = partition.spread(spread_of(reward, group, "mad"), group, 1.0)
        # Beside a reward of 1 a deviation of 1e-17 is rounding, also where the median is 0 and says no size.
        size = partition.spread(-partition.lowest(-np.abs(np.where(group >= 0, reward, 0.0)), group), group)
        deviation = np.where(deviation <= ROUNDING * size, 0.0, deviation)
        unit = deviation + self.eps
        leaf = np.divide(away, unit, out=away.copy(), where=unit > 0)
        if self.flat != "eps":
            by_std = scaled(away, reward, group, "std", ddof=0, eps=self.eps)
            leaf = np.where(deviation == 0, by_std if self.flat == "std" else away, leaf)
        counted = ~pivots(reward, group, middle, partition.steady(table, table.leaf)) if self.drop_pivot else None
        return Advantage(leaf=leaf, counted=counted)
