"""REINFORCE with statistics of the whole step, with or without a group baseline first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, Eps, centred, scaled
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Floats, Ints, Table

# A baseline per prompt that outlives the step: a forgetful Beta posterior of the success rate.


@dataclass(slots=True)
class BetaStore:
    """value = α / (α + β) per key; each outcome first decays both by ρ (MSSR, arXiv:2512.18215).

    The weight of the past settles at 1 / (1 − ρ) outcomes. ρ follows the mean KL by which the policy moved in the last
    `window` steps, which `move` is told: `most` at rest down to `least` at the target KL and beyond. (The released rule
    is not monotone: it forgets fastest when the policy stands still.)
    """

    least: float = 0.875
    most: float = 0.96
    target: float = 0.01
    window: int = 20
    moves: list[float] = field(default_factory=list[float])
    """KL of the latest steps, oldest first."""
    counts: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def value(self, key: str, unseen: float = 0.5) -> float:
        """The success rate expected of a key, before its next outcome is told."""
        if key not in self.counts:
            return unseen
        a, b = self.counts[key]
        return a / (a + b)

    def start(self, key: str, rate: float) -> None:
        """Begin a key at a rate measured beforehand, with the weight of 1 / (1 − least) outcomes."""
        weight = 1 / (1 - self.least)
        self.counts[key] = (weight * rate, weight * (1 - rate))

    def move(self, kl: float) -> None:
        """Tell how far the policy moved in a step."""
        self.moves = [*self.moves, kl][-self.window :]

    @property
    def forgetting(self) -> float:
        """ρ, what an outcome leaves of the counts before it."""
        moved = sum(self.moves) / len(self.moves) if self.moves else 0.0
        return self.most - min(max(moved, 0.0) / self.target, 1.0) * (self.most - self.least)

    def update(self, key: str, success: bool) -> None:
        """Tell an outcome; read `value` first."""
        if key not in self.counts:
            self.start(key, 0.5)
        a, b = self.counts[key]
        keep = self.forgetting
        self.counts[key] = (keep * a + success, keep * b + (not success))


# The baseline of least variance, for a whole response or for each position.


def running(table: Table, values: Floats) -> Floats:
    """Per action, the sum of a per-action value from its tree's root up to and including it."""
    total = np.cumsum(values)
    before, ends = (_up_to(total, at) for at in (table.start, table.start + table.length))
    above = table.down(ends - before) - (ends - before)
    total -= np.repeat(before - above, table.length)
    return total


def _up_to(total: Floats, at: Ints) -> Floats:
    """The running sum before each place."""
    return np.where(at > 0, total[at - 1], 0.0) if len(total) else np.zeros(len(at))


@register("optimal_baseline", paper="Optimal token baseline (no id recorded)", family="baseline")
@dataclass(frozen=True, slots=True)
class OptimalBaseline:
    """A = r − B with B = Σ W r / Σ W over the group, W = accumulated squared norm of the score.

    `level="token"`: B_t uses W_t = Σ_{u≤t} e_u of every response that reaches position t; `level="sequence"`: one B
    from the whole response's W (the classical optimum of Greensmith et al. 2004). Per-action energies e stand in
    `notes["energy"]`: exact ‖∇log π‖², or the logit proxy 1 − 2π(a) + Σ π². The baseline contains the leaf's own
    reward, so the estimate is biased by O(1/G).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "action:energy"})
    level: Literal["token", "sequence"] = "token"
    """Whether each position has a baseline of its own, or the whole answer one."""

    def __call__(self, table: Table) -> Advantage:
        """Reward per leaf and minus the baseline per action."""
        reward, energy = outcomes(table), action_values(table, "energy")
        reached = running(table, energy)
        group = partition.leaf_groups(table, "tree")
        if self.level == "sequence":
            per_node: Floats = np.bincount(
                np.repeat(np.arange(len(table.nodes)), table.length), energy, len(table.nodes)
            ).astype(np.float64)
            return Advantage(leaf=centred(reward, group, "mean", "zero", table.down(per_node)[table.leaf]))
        # Around the group's mean: a constant added to all rewards then changes nothing, not even by rounding.
        reward = centred(reward, group, "mean")
        position = running(table, table.loss_mask.astype(np.float64)).astype(np.int64) - 1
        width = int(position.max(initial=0)) + 1
        # What teaches nothing weighs nothing, so it may share a cell.
        cell = np.maximum(position, 0, out=position)
        cell += np.repeat(table.tree * width, table.length)
        live = table.live.astype(np.float64)
        leaves, rewards = table.below(live), table.below(live * reward)
        use = table.loss_mask & np.repeat(leaves > 0, table.length)
        reached *= use
        size = width * len(table.trees)
        mass = np.bincount(cell, reached * np.repeat(leaves, table.length), minlength=size)
        sums = np.bincount(cell, reached * np.repeat(rewards, table.length), minlength=size)
        middle = np.divide(-sums, mass, out=np.zeros(size), where=mass > 0)
        return Advantage(leaf=reward, action=np.where(use, middle[cell], 0.0))


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
