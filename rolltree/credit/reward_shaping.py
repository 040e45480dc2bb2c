"""Rewards changed before any credit: flaws, length, budgets, skills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.outcome import leaf_scores, outcomes, root_scores
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Bools, Floats, Table


def path_length(table: Table) -> Floats:
    """Number of trained actions on each leaf's path: what length rewards count, masked or not."""
    return table.down(np.where(table.trainable, table.length, 0).astype(np.float64))[table.leaf]


def right_and_marked(table: Table, reward: Floats, mark: str, correct: float) -> Bools:
    """Correct leaves whose score `mark` is above a half; leaves without that score are not marked."""
    return (leaf_scores(table, mark, missing=0.0) > 0.5) & (reward > correct)


@register("flawed_positive", paper="FAPO, flawed-aware policy optimisation (no id recorded)", family="shaping")
@dataclass(frozen=True, slots=True)
class FlawedPositive:
    """r ← r − penalty on correct leaves with score `flawed` > 0.5, then the base (FAPO).

    On a ±1 scale the penalty is 1, on 0/1 rewards 0.5: flawed is halfway between wrong and clean, so it is still
    reinforced while successes are rare and pushed down once they are not. Leaves without the score are not flawed
    (the judge runs on correct ones only). penalty = 0 is the base.
    """

    base: Credit | str = "grpo"
    penalty: float = 0.5
    """What a right answer with a flawed solution loses; 0 is the base credit."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage of the corrected rewards."""
        reward = outcomes(table)
        flawed = right_and_marked(table, reward, "flawed", self.correct)
        return resolve(self.base)(table.with_reward(reward - self.penalty * flawed))


@register("effort", paper="e1 / Adaptive Effort Control, arXiv:2510.27042", family="shaping")
@dataclass(frozen=True, slots=True)
class EffortReward:
    """r ← r · 1[length ≤ effort · mean length of the group], then the base (e1).

    The effort stands on the prompt as score `effort`. `over` says whose mean: "all" (long failures loosen the limit)
    or "correct". `floor` keeps the mean from shrinking step by step. Truncated leaves pull the mean down.
    """

    base: Credit | str = "grpo"
    over: Literal["all", "correct"] = "all"
    """Whose mean length counts: all rollouts of the group, or the correct ones."""
    floor: float = 1.0
    """Least mean length, in tokens."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and an effort per prompt."""
        return resolve(self.base).needs | {"root:effort"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage of the gated rewards."""
        reward, length = outcomes(table), path_length(table)
        use = table.live & (reward > self.correct) if self.over == "correct" else table.live
        group = partition.leaf_groups(table, "tree", use)
        mean = np.full(len(table.trees), self.floor)
        means = partition.mean(length, group)
        mean[: len(means)] = np.fmax(means, self.floor)
        limit = (root_scores(table, "effort") * mean)[table.leaf_tree]
        return resolve(self.base)(table.with_reward(np.where(length <= limit, reward, 0.0)))


@register("concise", paper="ConciseR, arXiv:2505.21178", family="shaping")
@dataclass(frozen=True, slots=True)
class Concise:
    """r_i ← r_i + λ (1 − length_i / limit) where ALL leaves of the prompt are correct, then the base (ConciseR, stage
    two; the remaining-budget form is reconstructed).

    Groups without a gradient because all succeeded learn brevity; others never pay for it. With a std in the base a
    tiny length difference becomes a unit advantage: prefer `dr_grpo`. λ = 0 is the base.
    """

    base: Credit | str = "dr_grpo"
    weight: float = 0.2
    """Most that a right answer earns for being short; 0 is the base credit."""
    limit: int = 1024
    """Length at which nothing is earned for being short."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage of rewards with the length term."""
        if self.limit < 1:
            raise CreditError(f"concise: limit must be at least 1 action, got {self.limit}")
        reward = outcomes(table)
        wrong = partition.total((reward <= self.correct).astype(np.float64), partition.leaf_groups(table, "tree"))
        solved = table.live & (np.append(wrong, np.zeros(len(table.trees)))[table.leaf_tree] == 0)
        spare = 1 - path_length(table) / self.limit
        return resolve(self.base)(table.with_reward(np.where(solved, reward + self.weight * spare, reward)))


@register("skill_bonus", paper="ARISE, arXiv:2603.16060", family="shaping")
@dataclass(frozen=True, slots=True)
class SkillBonus:
    """r ← r + bonus where the leaf is correct and its score `skill_used` > 0.5, then the base (ARISE).

    In a group that mixes aided and unaided leaves this rewards using a skill even when it did not matter.
    """

    base: Credit | str = "grpo"
    bonus: float = 1.0
    """What a right answer that used a skill earns on top."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage of the raised rewards."""
        reward = outcomes(table)
        used = right_and_marked(table, reward, "skill_used", self.correct)
        return resolve(self.base)(table.with_reward(reward + self.bonus * used))
