"""Reward a set of leaves together: every member gets the set's advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import outcomes, where
from rolltree.credit.partition import ids, leaf_groups
from rolltree.credit.registry import register
from rolltree.tree.table import Floats, Ints, Table

# Reward the group for holding at least one success among k.


def miss_probability(failures: Ints, size: Ints, k: int) -> Floats:
    """C(failures, k) / C(size, k): chance that k draws without replacement are all failures."""
    out = np.ones(len(size))
    for i in range(k):
        out *= np.divide(np.maximum(failures - i, 0), size - i, out=np.zeros(len(size)), where=size > i)
    return out


@register("pass_at_k", paper="Pass@k Training, arXiv:2508.10751", family="group")
@dataclass(frozen=True, slots=True)
class PassAtK:
    """Advantage of taking part in a random subset of k leaves rewarded 1 if any of them succeeds.

    With N leaves of which F fail: R = 1 − C(F,k)/C(N,k), σ = √(R(1−R)), a success gets (1−R)/σ and a failure
    (1 − R − C(F−1,k−1)/C(N−1,k−1))/σ (the analytical form of arXiv:2508.10751). k = 1 is GRPO with ddof 0 and eps 0.
    Use it when coverage falls while accuracy rises; not when only the first answer counts. Groups smaller than k, or
    with R of 0 or 1, teach nothing. A leaf succeeds when its reward exceeds `threshold`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    k: int = 4
    """Size of the subsets, of which one right answer is enough."""
    threshold: float = 0.5
    """Rewards above this count as right."""
    scale: bool = True
    """Whether to divide by the standard deviation of the subsets' rewards."""
    by: partition.By = "tree"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise CreditError(f"pass_at_k needs k of at least 1, got {self.k}")

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        group = partition.leaf_groups(table, self.by)
        success = outcomes(table) > self.threshold
        size = partition.count(group)
        failures = np.rint(partition.total((~success).astype(np.float64), group)).astype(np.int64)
        rate = 1 - miss_probability(failures, size, self.k)
        mates_fail = miss_probability(np.maximum(failures - 1, 0), np.maximum(size - 1, 0), self.k - 1)
        sigma = np.sqrt(rate * (1 - rate)) if self.scale else np.ones(len(rate))
        loss_mask = (size >= self.k) & (rate > 0) & (rate < 1)

        def over_sigma(x: Floats) -> Floats:
            return np.divide(x, sigma, out=np.zeros(len(x)), where=loss_mask)

        right, wrong = over_sigma(1 - rate), over_sigma(1 - rate - mates_fail)
        return Advantage(leaf=np.where(success, partition.spread(right, group), partition.spread(wrong, group)))


# Vines in a table: rollouts that set out from a state some other rollout came through.


def vines(table: Table) -> Ints:
    """Per node, the row of the run with which the innermost vine at or above it began; -1 = on none."""
    born = np.fromiter((n.birth == "vine" for n in table.nodes), np.bool_, len(table.nodes))
    row = np.where(born, np.arange(len(table.nodes)), -1)
    for level in table.levels[1:]:
        row[level] = np.where(row[level] < 0, row[table.parent[level]], row[level])
    return row


def vine_states(table: Table, vine: Ints, *, pooled: bool = False) -> Ints:
    """Per node, a number of the state that its vine set out from; -1 where it is on none.

    States are nodes, which is prefixes; `pooled` takes those of a tree with the same state key for one.
    """
    start = np.where(vine >= 0, table.parent[vine], -1)
    if not pooled:
        return ids(None if s < 0 else int(s) for s in start)
    for s in np.unique(start[start >= 0]):
        if table.nodes[s].state_key is None:
            raise CreditError(
                f'{where(table, int(s))} has no state key, so vines cannot be grouped by state; group them by "vine"'
            )
    return ids(None if s < 0 else (int(table.tree[s]), table.nodes[s].state_key) for s in start)


def turns_since(table: Table, vine: Ints) -> Ints:
    """Per node, how often the environment answered between the start of its vine and the node itself."""
    env = np.fromiter((n.role == "env" for n in table.nodes), np.float64, len(table.nodes))
    answers = table.down(env)
    before = np.where(vine >= 0, answers[table.parent[vine]], 0.0)
    return np.rint(answers - before).astype(np.int64)


def own_mean(table: Table, leaf: Floats, vine: Ints) -> Floats:
    """Per node, the mean over the live leaves below it that are on the same vine, or like it on none; 0 without."""
    rows, leaves = table.pairs()
    own = table.live[leaves] & (vine[rows] == vine[table.leaf[leaves]])
    mass = np.bincount(rows[own], minlength=len(table.nodes))
    sums = np.bincount(rows[own], leaf[leaves[own]], minlength=len(table.nodes))
    return np.divide(sums, mass, out=np.zeros(len(mass)), where=mass > 0)


@lru_cache(maxsize=64)
def subsets(members: int, size: int, most: int, seed: int) -> Ints:
    """All subsets of a size, or `most` drawn ones (seeded, without order) where there are more."""
    if math.comb(members, size) <= most:
        return np.array(list(combinations(range(members), size)), np.int64).reshape(-1, size)
    rng = np.random.default_rng((seed, members, size))
    return np.argsort(rng.random((most, members)), axis=1)[:, :size]


@register("set_shared", paper="Polychromic objectives, arXiv:2509.25424", family="tree")
@dataclass(frozen=True, slots=True)
class SetShared:
    """A_i = mean over sets S holding i of f(S) − mean over all sets, f = mean reward × diversity (Polychromic PPO).

    Diversity is the share of distinct `notes["answer"]` in the set, 0 where all are equal (None is an answer too).
    Every member gets the set's advantage; averaging over the sets a leaf is in is (reconstructed). `kind="sum"` adds
    the two, which also pays failed diverse sets. `size=1` leaves only the reward: the group mean. Not with
    per-trajectory credit on the same actions. Up to `most` sets are enumerated, beyond that drawn with `seed`.

    Members are the leaves of a tree or, by "vine", those that set out from one node by a vine; by "state" also those
    that set out from other nodes of the tree with the same state key. Of N members, Σ A_i ∇log π is (N/size − 1) times
    the gradient of E f on average: the baseline holds the sets of i, which shortens the step and does not turn it.
    By vine only a vine's own actions are credited, those of its first `window` turns (0 = all); fold with multiplicity
    "once". The others, before vines and behind windows, get by `elsewhere`: nothing, or the return less the mean of
    the vines of that state, and for rollouts that are no vines of the others that are none. The paper has a critic
    there.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "leaf-note:answer"})
    size: int = 4
    """Rollouts of a set; 1 leaves only the reward."""
    kind: Literal["product", "sum"] = "product"
    """Whether reward and diversity of a set are multiplied or added."""
    most: int = 256
    """Most sets that are looked at; beyond that they are drawn."""
    seed: int = 0
    by: Literal["tree", "vine", "state"] = "tree"
    window: int = 0
    """Turns of a vine that are credited; 0 = all."""
    elsewhere: Literal["nothing", "group"] = "nothing"
    """What actions outside of the vines get: nothing, or their return less a mean."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.kind not in ("product", "sum"):
            raise CreditError(f'set_shared: size {self.size}, kind {self.kind!r}; size >= 1 and "product" or "sum"')
        if self.by not in ("tree", "vine", "state") or self.elsewhere not in ("nothing", "group"):
            raise CreditError(
                f'set_shared: by {self.by!r}, elsewhere {self.elsewhere!r}; by is "tree", "vine" or "state", elsewhere '
                '"nothing" or "group"'
            )

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf, or of every node by vine; 0 in groups smaller than a set."""
        reward, answer = outcomes(table), answers(table)
        if self.by == "tree":
            return Advantage(leaf=self._credited(reward, answer, leaf_groups(table, "tree")))
        vine = vines(table)
        group = np.where(table.live, vine_states(table, vine, pooled=self.by == "state")[table.leaf], -1)
        shared = own_mean(table, self._credited(reward, answer, group), vine)
        turn = turns_since(table, vine)
        near = (vine >= 0) & ((turn < self.window) | (self.window == 0))
        if self.elsewhere == "nothing":
            return Advantage(node=np.where(near, shared, 0.0))
        rest = np.where(group < 0, table.leaf_tree + group.max(initial=-1) + 1, group)
        away = centred(reward, np.where(table.live, rest, -1), "mean")
        return Advantage(node=np.where(near, shared, own_mean(table, away, vine)))

    def _credited(self, reward: Floats, answer: Ints, group: Ints) -> Floats:
        leaf = np.zeros(len(reward))
        for number in range(int(group.max(initial=-1)) + 1):
            members = np.flatnonzero(group == number)
            if len(members) >= self.size:
                sets = subsets(len(members), self.size, self.most, self.seed)
                leaf[members] = self._shares(reward[members], answer[members], sets)
        return leaf

    def _shares(self, reward: Floats, answer: Ints, sets: Ints) -> Floats:
        ranked = np.sort(answer[sets], axis=1)
        distinct = 1 + (np.diff(ranked, axis=1) != 0).sum(axis=1)
        diverse = np.where((distinct == 1) & (self.size > 1), 0.0, distinct / self.size)
        mean = reward[sets].mean(axis=1)
        value = mean * diverse if self.kind == "product" else mean + diverse
        away = np.repeat(value - value.mean(), self.size)
        member = sets.ravel()
        hits = np.bincount(member, minlength=len(reward))
        return np.bincount(member, away, minlength=len(reward)) / np.maximum(hits, 1)


def answers(table: Table) -> Ints:
    """A number per leaf, equal where `notes["answer"]` is equal within a tree; -1 on leaves that are not live."""
    keys: list[tuple[int, Any] | None] = []
    for row, live, tree in zip(table.leaf, table.live, table.leaf_tree, strict=True):
        if live and "answer" not in table.nodes[row].notes:
            raise CreditError(f'{where(table, int(row))} has no notes["answer"]; verify it with a task that reads one')
        keys.append((int(tree), table.nodes[row].notes["answer"]) if live else None)
    return ids(keys)
