"""Entropy terms: who is uncertain learns more, or less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.normalise import Ddof
from rolltree.credit.outcome import action_values, where
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Bools, Floats, Table

Array = NDArray[np.floating[Any]]

PART = 1 << 14
"""Actions whose alternatives are read at a time."""


def standardised(table: Table, values: Floats, ddof: Ddof = 0) -> Floats:
    """z-scores over all trained actions of live paths; 0 where nothing varies or is trained on."""
    use = table.loss_mask & np.repeat(table.below(table.live.astype(np.float64)) > 0, table.length)
    inside = values[use]
    spread = inside.std(ddof=ddof) if len(inside) > ddof else 0.0
    if spread == 0:
        return np.zeros(len(values))
    z = values - inside.mean()
    z /= spread
    z[~use] = 0.0
    return z


def shaped(advantage: Advantage, factor: Floats) -> Advantage:
    """The advantage times a factor per action, whatever terms it has."""
    old = advantage.factor
    action = advantage.action
    return replace(
        advantage,
        factor=factor if old is None else old * factor,
        action=None if action is None else action * factor,
    )


@register(
    "entropy_scaled", paper="AEPO, agentic entropy-balanced policy optimisation (no id recorded)", family="shaping"
)
@dataclass(frozen=True, slots=True)
class EntropyScaled:
    """A_t ← A_t · max(0, 1 + a z(H_t)), z over the step's trained actions (AEPO's entropy-aware advantage).

    Uncertain actions learn more in both directions. Released code takes z per micro-batch, so packing changes it, and
    lets the factor turn negative below z = −1/a; here it stops at 0. a = 0 is the base.
    """

    base: Credit | str = "grpo"
    a: float = 0.2
    """How strongly advantages grow with the entropy; 0 is the base credit."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and entropies."""
        return resolve(self.base).needs | {"entropy"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, scaled."""
        z = standardised(table, action_values(table, "entropy"))
        return shaped(resolve(self.base)(table), np.maximum(1 + self.a * z, 0.0))


@register("entropy_confidence", paper="ECHO, arXiv:2602.02150", family="shaping")
@dataclass(frozen=True, slots=True)
class EntropyConfidence:
    """A_t ← A_t (1 + a S_t), S = clamp(α z(H) + β z(1 − C), ±2), C = mean probability of the top k (ECHO).

    C is as the paper has it; released code uses −mean log p, which has another scale. z over the step's teaching
    actions. The optional additive term of the code (λ = 0 by default there) is left out. a = 0 is the base.
    """

    base: Credit | str = "grpo"
    a: float = 0.1
    """How strongly advantages follow the signal; 0 is the base credit."""
    alpha: float = 1.0
    """Weight of the entropy in the signal."""
    beta: float = 1.0
    """Weight of the missing confidence in the signal."""
    k: int = 5
    """How many of the most likely tokens the confidence is a mean of."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's, entropies and top-k alternatives."""
        return resolve(self.base).needs | {"entropy", f"top:{self.k}"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, scaled."""
        # In place: at millions of actions every array made on the way costs as much as what is computed.
        doubt = confidence(table, self.k)
        np.subtract(1, doubt, out=doubt)
        factor = standardised(table, action_values(table, "entropy"))
        factor *= self.alpha
        factor += self.beta * standardised(table, doubt)
        np.clip(factor, -2, 2, out=factor)
        factor *= self.a
        factor += 1
        return shaped(resolve(self.base)(table), np.maximum(factor, 0.0, out=factor))


def confidence(table: Table, k: int) -> Floats:
    """Mean probability of the k most likely alternatives, per action; 1 where nothing is trained on."""
    out = np.ones(table.actions)
    use = table.trainable & (table.length > 0) & (table.below(table.live.astype(np.float64)) > 0)
    if use.any():
        out[np.repeat(use, table.length)] = np.concatenate([_mean_of_top(part, k) for part in _tops(table, use, k)])
    return out


def _tops(table: Table, use: Bools, k: int) -> Iterator[Array]:
    """(alternatives, actions) log-probs of these nodes in row order, in parts that fit a processor's cache."""
    part: list[Array] = []
    filled = 0
    for row in np.flatnonzero(use).tolist():
        top = table.nodes[row].top
        if top is None or top.logp.shape[1] < k:
            raise CreditError(f"{where(table, row)} lacks the {k} most likely alternatives; ask for top={k}")
        if part and (filled >= PART or top.logp.shape[1] != part[0].shape[1]):
            yield np.concatenate(part).T
            part, filled = [], 0
        part.append(top.logp)
        filled += len(top.logp)
    yield np.concatenate(part).T


def _mean_of_top(logp: Array, k: int) -> Floats:
    """Mean probability of the k largest of each column."""
    rows = np.ascontiguousarray(logp)
    if (rows[1:] > rows[:-1]).any():  # engines list the largest first
        _lift(rows, k)
    return np.exp(rows[:k], dtype=np.float64).sum(0) / k


def _lift(rows: Array, k: int) -> None:
    """Bring the k largest of each column to its head, in order: a bubble sort of rows, cheap where they are few."""
    for head in range(min(k, len(rows) - 1)):
        for low in range(len(rows) - 1, head, -1):
            above = np.maximum(rows[low - 1], rows[low])
            np.minimum(rows[low - 1], rows[low], out=rows[low])
            rows[low - 1] = above


@register("entropy_response", paper="ETTRL, arXiv:2508.11356", family="shaping")
@dataclass(frozen=True, slots=True)
class EntropyResponse:
    """A_i ← max(0, 2 − H_i / H̄) A_i, H_i the mean entropy of leaf i, H̄ the tree's mean (ETTRL, Adv-Res).

    The published factor turns negative beyond 2 H̄ and would flip the sign; it stops at 0 here. It scales negative
    advantages too, so confident wrong answers are pushed harder. `clip` > 0 is Adv-Clip: leaf advantages to ±clip.
    """

    base: Credit | str = "grpo"
    clip: float = 0.0

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and entropies."""
        return resolve(self.base).needs | {"entropy"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage with its leaf term scaled."""
        advantage = resolve(self.base)(table)
        leaf = leaf_only("entropy_response", advantage)
        if self.clip > 0:
            return replace(advantage, leaf=np.clip(leaf, -self.clip, self.clip))
        mean = per_leaf_mean(table, action_values(table, "entropy"))
        use = table.live & (table.loss_tokens > 0)
        group = np.bincount(table.leaf_tree[use], minlength=len(table.trees))
        total = np.bincount(table.leaf_tree[use], mean[use], minlength=len(table.trees))
        tree = np.divide(total, group, out=np.zeros(len(total)), where=group > 0)[table.leaf_tree]
        ratio = np.divide(mean, tree, out=np.ones(len(mean)), where=tree > 0)
        return replace(advantage, leaf=np.maximum(2 - ratio, 0.0) * leaf)


@register("entropy_bonus", paper="MSSR, arXiv:2512.18215", family="shaping")
@dataclass(frozen=True, slots=True)
class EntropyBonusCredit:
    """A_t ← A_t + ψ_t, ψ_t = min(a H_t, |A_t| / 2) (MSSR): rewards grow, punishments soften, signs stay.

    H is the entropy of the distribution; released code uses −p log p of the sampled action, which is another
    quantity. On an action shared by leaves |A_t| is the smallest of theirs, so that no sign can change. a = 0 is the
    base. Breaks the zero sum of a group on purpose.
    """

    base: Credit | str = "reinforce_pp"
    a: float = 0.4
    """Weight of the entropy added to an advantage; 0 is the base credit."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and entropies."""
        return resolve(self.base).needs | {"entropy"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage and a bonus per action."""
        advantage = resolve(self.base)(table)
        leaf = leaf_only("entropy_bonus", advantage)
        use = table.live if advantage.counted is None else table.live & advantage.counted
        smallest = np.full(len(table.nodes), np.inf)
        smallest[table.leaf[use]] = np.abs(leaf[use])
        for level in table.levels[:0:-1]:
            np.minimum.at(smallest, table.parent[level], smallest[level])
        half = np.repeat(np.where(np.isfinite(smallest), smallest, 0.0), table.length) / 2
        return replace(advantage, action=np.minimum(self.a * action_values(table, "entropy"), half))


def leaf_only(name: str, advantage: Advantage) -> Floats:
    """The leaf term of an advantage that has no other; refuses the rest."""
    if advantage.leaf is None or advantage.node is not None or advantage.action is not None:
        raise CreditError(f"{name} shapes one number per leaf; its base gives advantages per node or action")
    if advantage.factor is not None:
        raise CreditError(f"{name} reads the advantage of a leaf; apply it before any per-action shaping")
    return advantage.leaf


def per_leaf_mean(table: Table, values: Floats) -> Floats:
    """Mean of a per-action value over each leaf's trained actions; 0 for empty leaves."""
    rows = np.repeat(np.arange(len(table.nodes)), table.length)[table.loss_mask]
    per_node = np.bincount(rows, values[table.loss_mask], minlength=len(table.nodes)).astype(np.float64)
    return table.down(per_node)[table.leaf] / np.maximum(table.loss_tokens, 1)
