"""Shape an attempt's own reward by its parent's and its siblings' before normalising over the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import node_scores
from rolltree.credit.registry import register
from rolltree.tree.table import Bools, Floats, Ints, Table


def attempts(table: Table) -> tuple[Ints, Ints]:
    """Rows of the attempts (trained nodes with a `reward` that did not fail), and each one's parent attempt or -1."""
    is_one = np.fromiter(
        (
            n.trainable
            and "reward" in n.scores
            and n.status not in ("pruned", "failed")
            and not n.usage.startswith("dropped")
            for n in table.nodes
        ),
        np.bool_,
    )
    nearest = np.full(len(table.nodes), -1, np.int64)
    for level in table.levels[1:]:
        above = table.parent[level]
        nearest[level] = np.where(is_one[above], above, nearest[above])
    rows = np.flatnonzero(is_one)
    return rows, nearest[rows]


@register("sibling_shaping", paper="MARS², arXiv:2604.14564", family="tree")
@dataclass(frozen=True, slots=True)
class SiblingShaping:
    """R ← R + γ (R − b), b = (1−λ) R_parent + λ mean of the other siblings; then (R − mean)/std over the tree.

    For trees whose every attempt has its own `reward` (MARS²); the parent is the nearest attempt above. Where only one
    of the two exists it is b alone, where none does R stays. Computed from the unshaped rewards of all; `in_place`
    goes in node order instead, so children and later siblings see shaped rewards, as released. γ = 0 is plain
    normalisation over the attempts. Fold with multiplicity "once": an attempt is one sample, however often continued.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    gamma: float = 0.3
    blend: float = 0.5
    """Weight of the siblings' mean against the parent in the baseline."""
    in_place: bool = False
    """Whether later attempts see the shaped rewards of earlier ones, as released."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every attempt."""
        rows, parent = attempts(table)
        reward = np.zeros(len(table.nodes))
        reward[rows] = node_scores(table, "reward", rows)
        _, family = np.unique(np.where(parent >= 0, parent, -1 - table.tree[rows]), return_inverse=True)
        mates = partition.count(family) - 1
        if self.in_place:
            order = sorted(range(len(rows)), key=lambda i: (table.tree[rows[i]], table.nodes[rows[i]].id))
            batches = [np.array([i]) for i in order]
        else:
            batches = [np.arange(len(rows))]
        sums = partition.total(reward[rows], family)
        for at in batches:
            own, here = reward[rows[at]], family[at]
            others = np.divide(sums[here] - own, mates[here], out=np.zeros(len(at)), where=mates[here] > 0)
            shaped = self._shaped(own, np.where(parent[at] >= 0, reward[parent[at]], np.nan), others, mates[here] > 0)
            reward[rows[at]] = shaped
            if self.in_place:
                sums[here] += shaped - own
        group = np.full(len(table.nodes), -1, np.int64)
        group[rows] = table.tree[rows]
        middle = centred(reward, group, "mean")
        return Advantage(node=scaled(middle, reward, group, "std", ddof=self.ddof, eps=self.eps))

    def _shaped(self, own: Floats, above: Floats, others: Floats, has_mates: Bools) -> Floats:
        has_parent = np.isfinite(above)
        share = np.where(has_parent & has_mates, self.blend, np.where(has_mates, 1.0, 0.0))
        baseline = (1 - share) * np.where(has_parent, above, 0.0) + share * others
        return np.where(has_parent | has_mates, own + self.gamma * (own - baseline), own)
