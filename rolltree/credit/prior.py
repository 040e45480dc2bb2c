"""Baselines that know the prompt before any sample: fused with the group, or alone for single rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import spread_of
from rolltree.credit.outcome import outcomes, root_scores
from rolltree.credit.registry import register
from rolltree.credit.reinforce_pp import whitened
from rolltree.tree.table import Table


@register("prior_fused", paper="V0.5, arXiv:2603.10848", family="baseline")
@dataclass(frozen=True, slots=True)
class PriorFused:
    """A_i = r_i − b, b = w v + (1 − w) mean r, w = (s²/n) / (s²/n + bias²), bias² = max(0, (v − mean)² − s²/n) (V0.5).

    v is the prompt's score `prior`, a value of the current policy from outside the group. If v lies within the noise
    of the sample it is trusted fully. The formula is reconstructed. `variance="prior"` uses v(1−v) for s², which is
    never 0 where all rewards agree; "sample" uses the group's (ddof 1). A wrong prior costs more than it gains at
    n = 4 unless conflicting prompts get more rollouts. Baselines off the group mean revive all-equal groups.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "root:prior"})
    variance: Literal["prior", "sample"] = "prior"
    """Where the variance of a reward is taken from: the prior, or the group."""

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, prior = outcomes(table), root_scores(table, "prior")
        group = partition.leaf_groups(table, "tree")
        n = np.bincount(group[group >= 0], minlength=len(table.trees))
        mean = np.zeros(len(table.trees))
        means = partition.mean(reward, group)
        mean[: len(means)] = np.nan_to_num(means)
        if self.variance == "prior":
            if ((prior < 0) | (prior > 1)).any():
                raise CreditError('prior_fused: variance "prior" needs priors in [0, 1]; use variance="sample"')
            spread = prior * (1 - prior)
        elif self.variance == "sample":
            spread = np.zeros(len(table.trees))
            found = np.nan_to_num(spread_of(reward, group, "std", ddof=1)) ** 2
            spread[: len(found)] = found
        else:
            raise CreditError(f'prior_fused: variance is {self.variance!r}; choose "prior" or "sample"')
        noise = spread / np.maximum(n, 1)
        bias = np.maximum((prior - mean) ** 2 - noise, 0.0)
        weight = np.divide(noise, noise + bias, out=np.zeros(len(noise)), where=noise + bias > 0)
        middle = (weight * prior + (1 - weight) * mean)[table.leaf_tree]
        return Advantage(leaf=np.where(table.live, reward - middle, 0.0))


@register("prior_baseline", paper="MSSR, arXiv:2512.18215", family="baseline")
@dataclass(frozen=True, slots=True)
class PriorBaseline:
    """A_i = r_i − v with v the prompt's score `prior`, then whitened over the step (MSSR's single-rollout baseline).

    Keep v in a `BetaStore`, read BEFORE it is updated with the same rollout. One rollout per prompt suffices.
    `entropy_bonus` on top is the published combination. `whiten=False` leaves the plain difference.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "root:prior"})
    whiten: bool = True

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        prior = root_scores(table, "prior")[table.leaf_tree]
        leaf = np.where(table.live, outcomes(table) - prior, 0.0)
        if self.whiten:
            leaf = whitened(table, leaf, "leaves", ddof=0, eps=1e-8, place="inside")
        return Advantage(leaf=leaf)
