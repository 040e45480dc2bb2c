"""Sharpen correct answers the policy finds unlikely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import leaf_only, per_leaf_mean
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Table


@register("novelty", paper="XRPO, arXiv:2510.06672", family="shaping")
@dataclass(frozen=True, slots=True)
class Novelty:
    """A_i ← A_i + min(max(λ (1 − η_i), 0), κ A_i) on correct leaves, η_i = exp(s_i − mean s), s = mean log-prob (XRPO).

    `among` says whose mean s: the group's correct leaves, or all. Only positive advantages grow, by at most κ.
    Without length normalisation η would measure length. λ = 0 is the base.
    """

    base: Credit | str = "grpo"
    weight: float = 2.5
    """How much an unlikely right answer earns on top; 0 is the base credit."""
    clip: float = 0.5
    among: Literal["correct", "all"] = "correct"
    """What an answer's likelihood is compared with: the correct ones of the group, or all."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and log-probs."""
        return resolve(self.base).needs | {"logp"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, sharpened."""
        if self.among not in ("correct", "all"):
            raise CreditError(f'novelty: among is {self.among!r}; choose "correct" or "all"')
        advantage = resolve(self.base)(table)
        leaf = leaf_only("novelty", advantage)
        right = table.live & (outcomes(table) > self.correct)
        likely = per_leaf_mean(table, action_values(table, "logp"))
        group = partition.leaf_groups(table, "tree", right if self.among == "correct" else table.live)
        mean = np.full(len(table.trees), 0.0)
        means = partition.mean(likely, group)
        mean[: len(means)] = np.nan_to_num(means)
        surprise = np.exp(np.minimum(likely - mean[table.leaf_tree], 50.0))
        more = np.minimum(np.maximum(self.weight * (1 - surprise), 0.0), self.clip * leaf)
        return replace(advantage, leaf=np.where(right & (leaf > 0), leaf + more, leaf))
