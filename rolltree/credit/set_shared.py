"""Reward a set of leaves together: every member gets the set's advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.normalise import centred
from rolltree.credit.outcome import outcomes, where
from rolltree.credit.partition import ids, leaf_groups
from rolltree.credit.registry import register
from rolltree.credit.vines import own_mean, turns_since, vine_states, vines
from rolltree.tree.table import Floats, Ints, Table


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
