"""Token-level group average and entropy-guided redistribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import shaped
from rolltree.credit.grpo import GRPO
from rolltree.credit.normalise import centred, scaled
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import register, resolve
from rolltree.generate.signals import log_entropy
from rolltree.tree.table import Floats, Table


@register("token_group", paper="HAPO, token-level group average (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class TokenGroup:
    """A_i = (r_i − mean)/(std + eps) with mean and population std over the group's trained actions (HAPO, TLGA).

    Long responses weigh more in the mean, so the sum over a group's actions is exactly 0 (use averaging "token"). A
    group with any |A| ≥ `fallback` uses leaf statistics (GRPO) instead.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    fallback: float = 5.0
    """Size of an advantage from which on a group uses statistics of leaves instead of tokens."""
    eps: float = 1e-6
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward = outcomes(table)
        weights = table.loss_tokens.astype(np.float64)
        group = partition.leaf_groups(table, self.by, table.live & (weights > 0))
        middle = centred(reward, group, "mean", "zero", weights)
        leaf = scaled(middle, reward, group, "std", ddof=0, eps=self.eps, weights=weights)
        usual = GRPO(by=self.by, ddof=0, eps=self.eps)(table).leaf
        extreme = np.bincount(
            group[(group >= 0) & (np.abs(leaf) >= self.fallback)], minlength=group.max(initial=-1) + 1
        )
        use_usual = partition.spread(extreme.astype(np.float64), group) > 0
        return Advantage(leaf=np.where(use_usual, usual if usual is not None else leaf, leaf))


def log_entropy_rank(table: Table, entropy: Floats, quantile: float = 0.8) -> Floats:
    """ĥ in [−1, 1]: log-entropy around its quantile over the step, each side over its own largest magnitude.

    The released code divides the negative side by a negative number, so it comes out positive; this is the intended
    form.
    """
    use = table.loss_mask & np.repeat(table.below(table.live.astype(np.float64)) > 0, table.length)
    out = np.zeros(len(entropy))
    if not use.any():
        return out
    away = log_entropy(entropy[use])
    away -= np.quantile(away, quantile)
    high, low = away.max(), -away.min()
    out[use] = away / np.where(away > 0, high if high > 0 else 1.0, low if low > 0 else 1.0)
    return out


@register("redistributed", paper="HAPO, advantage redistribution at ratio 1 (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class Redistributed:
    """A_t ← A_t (1 + β min(ĥ_t, 0)): low-entropy actions learn less (HAPO's redistribution where ratios are 1).

    ĥ is the normalised log-entropy. The other half of the rule, which strengthens high-entropy actions whose ratio
    has left the neutral band, reads ratios and belongs to an objective. β = 0 is the base.
    """

    base: Credit | str = "token_group"
    beta: float = 1.0
    """How much less actions of low entropy learn; 0 is the base credit."""
    quantile: float = 0.8
    """Quantile of the log-entropy above which nothing is taken away."""

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise CreditError(f"redistributed: beta {self.beta} must lie in [0, 1] so that signs survive")

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and entropies."""
        return resolve(self.base).needs | {"entropy"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, scaled."""
        rank = log_entropy_rank(table, action_values(table, "entropy"), self.quantile)
        return shaped(resolve(self.base)(table), 1 + self.beta * np.minimum(rank, 0.0))
