"""REINFORCE with statistics of the whole step, with or without a group baseline first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, Eps, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Floats, Table

Over = Literal["tokens", "leaves"]
"""Whether the step's mean and deviation count each leaf once or once per trained action."""


def whitened(table: Table, values: Floats, over: Over, *, ddof: int, eps: float, place: Eps) -> Floats:
    """Values of live leaves minus the step's mean, over the step's standard deviation."""
    group = partition.leaf_groups(table, "batch")
    weights = table.loss_tokens.astype(np.float64) if over == "tokens" else None
    if weights is not None and not weights[group >= 0].any():
        return np.zeros(len(values))
    middle = centred(values, group, "mean", "zero", weights)
    return scaled(middle, values, group, "std", ddof=ddof, eps=eps, place=place, weights=weights)


@register("reinforce_pp", paper="REINFORCE++, arXiv:2501.03262", family="group")
@dataclass(frozen=True, slots=True)
class ReinforcePP:
    """A = (r − mean) / std over the whole step (REINFORCE++ of arXiv:2501.03262, for one sample per prompt).

    Works with groups of one. A prompt's difficulty stays in the advantage as noise: with several samples per prompt
    use `reinforce_pp_baseline`. Released code whitens over tokens (`over="tokens"`), so long leaves weigh more in the
    mean; it also subtracts a per-token KL from the reward first, which here belongs to the objective's penalties.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    over: Over = "tokens"
    """Whether mean and deviation of the step are over tokens or over leaves."""
    ddof: Ddof = 1
    eps: float = 1e-8
    place: Eps = "inside"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        return Advantage(
            leaf=whitened(table, outcomes(table), self.over, ddof=self.ddof, eps=self.eps, place=self.place)
        )


@register("reinforce_pp_baseline", paper="REINFORCE++, arXiv:2501.03262", family="group")
@dataclass(frozen=True, slots=True)
class ReinforcePPBaseline:
    """A = whiten(r − group mean) over the whole step (REINFORCE++-baseline, arXiv:2501.03262).

    The scale is one number for the step, so easy and hard prompts keep their natural weight (unlike GRPO). The second
    centring moves nothing when all leaves are equally long and shifts every advantage a little when they are not.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"
    over: Over = "tokens"
    """Whether mean and deviation of the step are over tokens or over leaves."""
    ddof: Ddof = 1
    eps: float = 1e-8
    place: Eps = "inside"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        middle = centred(outcomes(table), partition.leaf_groups(table, self.by), "mean")
        return Advantage(leaf=whitened(table, middle, self.over, ddof=self.ddof, eps=self.eps, place=self.place))
