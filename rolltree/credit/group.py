"""Group mean and standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, Eps, Singleton, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table

# The outcome itself, without a baseline.


@register("raw", paper="REINFORCE (Williams 1992)", family="baseline")
@dataclass(frozen=True, slots=True)
class Raw:
    """A_i = r_i (REINFORCE, Williams 1992): unbiased, and the noisiest of all.

    For imitation, where an answer's outcome is how much of it is to be learned, and to see what a baseline saves. Not
    for rollouts with positive rewards only: everything sampled is pushed up.

    `right` is filtered imitation instead: what is right counts 1, and the rest neither teaches nor counts in a mean.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    right: bool = False
    """Whether right answers alone teach, all alike."""
    correct: float = 0.5
    """A larger outcome is right."""

    def __call__(self, table: Table) -> Advantage:
        """The outcome of every live leaf, or 1 for each right one."""
        reward = outcomes(table)
        if not self.right:
            return Advantage(leaf=reward)
        right = reward > self.correct
        return Advantage(leaf=right.astype(np.float64), counted=right)


# Length-weighted baseline.


@register("opo", paper="On-Policy RL with Optimal Reward Baseline, arXiv:2505.23585", family="baseline")
@dataclass(frozen=True, slots=True)
class OPO:
    """A_i = r_i − Σ l_j r_j / Σ l_j, l = response length (OPO, arXiv:2505.23585, section 3).

    The variance-optimal baseline if squared score norms grow with length alone and do not depend on the content; then
    the SUM (not the mean) over actions is the gradient, so use it with averaging "token" or "fixed". Empty responses
    do not enter the baseline. For the exact optimum give `optimal_baseline` the gradient energies.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by, table.live & (table.loss_tokens > 0))
        return Advantage(leaf=centred(outcomes(table), group, "mean", "zero", table.loss_tokens.astype(np.float64)))


# Leave one out.


@register("rloo", paper="Back to Basics, arXiv:2402.14740", family="group")
@dataclass(frozen=True, slots=True)
class RLOO:
    """A_i = r_i − mean of the other rewards of the group (REINFORCE leave-one-out, arXiv:2402.14740, eq. 8).

    The baseline does not contain the leaf's own reward, so the gradient is exactly unbiased for independent leaves.
    Leaves of a forked tree are not independent: siblings carry information about a shared prefix.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"
    singleton: Singleton = "zero"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by)
        counted = partition.size(group) > 1 if self.singleton == "skip" else None
        return Advantage(leaf=centred(outcomes(table), group, "leave_one_out", self.singleton), counted=counted)


# Group mean without a scale.


@register("dr_grpo", paper="Understanding R1-Zero-Like Training, arXiv:2503.20783", family="group")
@dataclass(frozen=True, slots=True)
class DrGRPO:
    """A_i = r_i − mean r over the leaves of a group (Dr. GRPO, arXiv:2503.20783, section 3.2).

    The other half of Dr. GRPO, a constant divisor instead of each response's length, is the averaging "fixed". The
    gradient is (G−1)/G times that of leave-one-out: unbiased up to that factor. Prefer it to GRPO when all rewards
    share a scale.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"
    singleton: Singleton = "zero"

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by)
        counted = partition.size(group) > 1 if self.singleton == "skip" else None
        return Advantage(leaf=centred(outcomes(table), group, "mean", self.singleton), counted=counted)


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
