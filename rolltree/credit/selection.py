"""Train on part of what was rolled out: where advantages vary most, or the short right and the long wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import leaf_only
from rolltree.credit.outcome import action_values, leaf_scores, outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Bools, Floats, Ints, Table

# Rewards changed before any credit: flaws; and the length that rewards of length count.


def path_length(table: Table) -> Floats:
    """Number of trained actions on each leaf's path: what length rewards count, masked or not."""
    return table.down(np.where(table.trainable, table.length, 0).astype(np.float64))[table.leaf]


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
        flawed = (leaf_scores(table, "flawed", missing=0.0) > 0.5) & (reward > self.correct)
        return resolve(self.base)(table.with_reward(reward - self.penalty * flawed))


def most_spread(values: Floats, keep: int, rank: Ints) -> Ints:
    """Indices of `keep` values of largest variance: some of the largest and the rest smallest, every split tried.

    Ties go by `rank`.
    """
    order = np.lexsort((rank, np.round(values, 12)))
    if keep >= len(values):
        return order
    ranked = values[order] - values.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(x)]) for x in (ranked, ranked**2))
    low = np.arange(keep + 1)
    high = len(values) - (keep - low)
    s, q = sums[low] + sums[-1] - sums[high], squares[low] + squares[-1] - squares[high]
    best = int(np.argmax(np.round(q / keep - (s / keep) ** 2, 12))) if keep else 0
    return np.concatenate([order[:best], order[len(values) - (keep - best) :]])


def largest(values: Floats, keep: int, rank: Callable[[Ints], Ints]) -> Ints:
    """Indices of the `keep` largest values in no order, without sorting them all; `rank` decides between equal ones."""
    if keep >= len(values):
        return np.arange(len(values))
    least = np.partition(values, len(values) - keep)[len(values) - keep]
    above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
    room = keep - len(above)
    if room < len(equal):
        equal = equal[np.argsort(rank(equal), kind="stable")[:room]]
    return np.concatenate([above, equal])


def _rank(table: Table, actions: Ints) -> Ints:
    """Order of flat actions by (tree id, node id, place in the node)."""
    row = np.searchsorted(table.start, actions, side="right") - 1
    return partition.steady(table, np.arange(len(table.nodes)))[row] * (int(table.length.max()) + 1) + (
        actions - table.start[row]
    )


@register("downsampled", paper="D3S, arXiv:2509.22115", family="shaping")
@dataclass(frozen=True, slots=True)
class Downsampled:
    """Keep the share of leaves that maximises Var(A) over the step, then the actions with the largest |A_t| H_t (D3S).

    Selection is over the whole batch: within one group normalised advantages already have variance 1. Dropped actions
    get factor 0, and the kept ones are scaled up by total/kept so that the step does not shrink (`rescale`). What is
    kept no longer sums to 0. Grow both shares over training. 1 and 1 are the base. On an action shared by leaves |A|
    is that of their mean; that tokens are ranked over the selected leaves only is reconstructed.
    """

    base: Credit | str = "grpo"
    leaves: float = 0.5
    tokens: float = 0.2
    """Share of the actions that are kept; 1 keeps all."""
    rescale: bool = True
    """Whether kept actions are scaled up so that the step does not shrink."""

    def __post_init__(self) -> None:
        if not (0 < self.leaves <= 1 and 0 < self.tokens <= 1):
            raise CreditError(f"downsampled: leaves {self.leaves} and tokens {self.tokens} must lie in (0, 1]")

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and entropies if actions are selected."""
        return resolve(self.base).needs | ({"entropy"} if self.tokens < 1 else frozenset())

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage on what was kept."""
        advantage = resolve(self.base)(table)
        leaf = leaf_only("downsampled", advantage)
        counted = table.live if advantage.counted is None else table.live & advantage.counted
        pool = np.flatnonzero(counted)
        kept = np.zeros(len(leaf), np.bool_)
        rank = partition.steady(table, table.leaf)
        size = min(len(pool), max(1, round(self.leaves * len(pool))))
        kept[pool[most_spread(leaf[pool], size, rank[pool])]] = True
        if self.tokens == 1:
            return replace(advantage, counted=kept)
        mass = table.below(kept.astype(np.float64))
        mean = np.divide(table.below(np.where(kept, leaf, 0.0)), mass, out=np.zeros(len(mass)), where=mass > 0)
        use = table.loss_mask & np.repeat(mass > 0, table.length)
        worth = np.repeat(np.abs(mean), table.length) * action_values(table, "entropy")
        at = np.flatnonzero(use)
        chosen = at[
            largest(np.round(worth[at], 12), max(1, round(self.tokens * len(at))), lambda i: _rank(table, at[i]))
        ]
        factor = np.zeros(table.actions)
        factor[chosen] = len(at) / max(len(chosen), 1) if self.rescale else 1.0
        return replace(advantage, counted=kept, factor=factor)


def check_share(share: float) -> None:
    """Refuse a share of leaves that is none."""
    if not 0 < share <= 1:
        raise CreditError(f"recompose: share {share} must lie in (0, 1]")


def recompose(table: Table, share: float, correct: float = 0.5) -> Bools:
    """Leaves to train on now: of each tree's right ones the shortest, of its wrong ones the longest (RoRecomp).

    `share` of each kind is kept, at least one; the others go to a FIFO and are trained later with the advantages they
    have here. What the share is taken of is reconstructed.
    """
    check_share(share)
    right = outcomes(table) > correct
    length = path_length(table)
    now, steady = np.zeros(len(right), np.bool_), partition.steady(table, table.leaf)
    for kind, rank in ((right, length), (~right, -length)):
        at = np.flatnonzero(table.live & kind)
        at = at[np.lexsort((steady[at], rank[at], table.leaf_tree[at]))]
        tree = table.leaf_tree[at]
        sizes = np.bincount(tree, minlength=len(table.trees))
        place = np.arange(len(at)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        now[at[place < np.maximum(np.ceil(share * sizes - 1e-9), 1)[tree]]] = True
    return now


def recalled(table: Table) -> Bools:
    """Trees that were trained before: those whose prompt has the score `recalled`, which the trainer writes."""
    return np.nan_to_num(table.score("recalled")[table.root]) > 0


@register("recomposed", paper="RoRecomp, arXiv:2509.25958", family="shaping")
@dataclass(frozen=True, slots=True)
class Recomposed:
    """The base's advantages over the full group, for the short right and the long wrong leaves only (RoRecomp).

    Advantages are computed BEFORE the selection: renormalising within it would kill or flip the signal. share = 1 is
    the base. With `compensate` a tree that comes back from an earlier step (score `recalled` on its prompt, see
    `Recall`) is taught by the leaves that were left aside then: they have the advantages they had, and their turn comes
    in order of age.
    """

    base: Credit | str = "grpo"
    share: float = 0.8
    """Share of the rollouts that are trained on; 1 is the base credit."""
    compensate: bool = False
    """Whether a tree that comes back is trained on the rollouts left aside the first time."""

    def __post_init__(self) -> None:
        check_share(self.share)

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage on the priority leaves, or on the others of a tree that comes back."""
        advantage = resolve(self.base)(table)
        now = recompose(table, self.share)
        if self.compensate:
            again = recalled(table)[table.leaf_tree]
            now = np.where(again, table.live & ~now, now)
        return replace(advantage, counted=now if advantage.counted is None else now & advantage.counted)
