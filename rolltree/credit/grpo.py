"""Group mean and standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, Eps, Singleton, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("grpo", paper="DeepSeekMath, arXiv:2402.03300", family="group")
@dataclass(frozen=True, slots=True)
class GRPO:
    """A_i = (r_i − mean r) / (std r + eps) over the leaves of a group (GRPO, eq. 3 of arXiv:2402.03300).

    Use it when rewards of different prompts live on different scales. Not when prompts are very easy or very hard:
    dividing by a small std gives them the largest weight, and scaled by its own sample's std the estimate is biased.
    Released code differs in `ddof` (1 in TRL and verl, 0 elsewhere), `eps` (1e-4, 1e-6) and its place.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"
    ddof: Ddof = 1
    eps: float = 1e-6
    place: Eps = "outside"
    singleton: Singleton = "zero"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, group = outcomes(table), partition.leaf_groups(table, self.by)
        middle = centred(reward, group, "mean", self.singleton)
        leaf = scaled(middle, reward, group, "std", ddof=self.ddof, eps=self.eps, place=self.place)
        counted = partition.size(group) > 1 if self.singleton == "skip" else None
        return Advantage(leaf=leaf, counted=counted)
