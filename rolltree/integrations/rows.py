"""Trees as the rows a flat trainer takes: one per leaf, each action with the advantage it has on that leaf's path.

Written out this way a shared prefix stands in several rows, and the sum of their gradients is that of the packed tree
(see `rolltree.credit.fold`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from rolltree.credit.fold import expand, leaf_weights
from rolltree.filter.groups import sift
from rolltree.metrics.usage import settle_rest, settle_usage
from rolltree.recipe.recipe import Parts
from rolltree.tree import Node, Tree
from rolltree.tree.node import FloatArray
from rolltree.tree.table import Table, table
from rolltree.tree.views import path_view


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout as a flat trainer sees it. Lists have one entry per token of the completion."""

    prompt: list[int]
    completion: list[int]
    logp: list[float]
    """Log-prob under the distribution sampled from; 0 where the token is not the policy's, NaN where it was not
    sampled."""
    mask: list[int]
    """1 where the token teaches: the policy's own, on a leaf that the recipe's filters and credit let teach."""
    advantage: list[float]
    """0 where the token does not teach."""
    reward: float | None
    """What the credit saw of the leaf; None where there was no outcome (never a zero in its place)."""
    version: int
    """Oldest weights that wrote one of its own tokens; -1 where the engine did not say."""
    item: str

    @property
    def loss_mask(self) -> bool:
        """Whether it has any token to learn from."""
        return 1 in self.mask


def credited(parts: Parts, trees: Sequence[Tree], limit: int) -> list[list[Row]]:
    """The rows of each tree, in the order of trees and leaves: filters, shapers and credit as in Rolltree's own loop.

    A row for every leaf that finished with an outcome and wrote something. Leaves of a group that a filter dropped, or
    that the credit leaves out, keep their row and their reward but teach nothing; every leaf's usage is settled.
    """
    kept, dropped = sift(trees, parts.filters)
    for tree in kept:
        for shape in parts.shapers:
            shape(tree, limit)
    view = table(kept)
    taught = _advantages(view, parts) if len(view.leaf) and view.live.any() else {}
    settle_rest([*dropped, *kept])
    return [[_row(tree, leaf, taught.get(id(leaf))) for leaf in _judged(tree)] for tree in trees]


def fit(rows: Sequence[Row], count: int, seed: int) -> list[Row]:
    """At most `count` of a prompt's rows, in their order.

    Where there are more, rows that teach go before rows that do not, and among equals chance decides, so that the mean
    over the rows that are left stands for the mean over all.
    """
    if len(rows) <= count:
        return list(rows)
    chance = np.random.default_rng(seed).random(len(rows))
    chosen = sorted(range(len(rows)), key=lambda i: (not rows[i].loss_mask, chance[i]))[:count]
    return [rows[i] for i in sorted(chosen)]


def blank(prompt: Sequence[int], filler: int, item: str) -> Row:
    """The row of a rollout that does not exist or failed: one masked token and no reward."""
    return Row(list(prompt), [filler], [0.0], [0], [0.0], None, -1, item)


def _judged(tree: Tree) -> list[Node]:
    """Leaves with an outcome on whose path the policy wrote something."""
    return [
        leaf for leaf in tree.leaves()
        if leaf.status == "done" and "reward" in leaf.scores and any(n.trainable and len(n) for n in tree.path(leaf))
    ]  # fmt: skip


def _advantages(view: Table, parts: Parts) -> dict[int, FloatArray]:
    """Advantages of the teaching actions along each taught leaf's path, by the leaf's identity."""
    advantage = parts.credit(view)
    weights = leaf_weights(view, "token", counted=advantage.counted)
    written = expand(view, advantage, weights, parts.multiplicity)
    values = written.advantage if written.share is None else written.advantage * written.share
    settle_usage(view, weights)
    at = np.searchsorted(written.path, np.arange(len(written.leaf) + 1))
    return {
        id(view.nodes[view.leaf[leaf]]): values[at[i] : at[i + 1]].astype(np.float32)
        for i, leaf in enumerate(written.leaf.tolist())
    }


def _row(tree: Tree, leaf: Node, advantage: FloatArray | None) -> Row:
    path = path_view(tree, leaf)
    start = sum(len(n) for n in takewhile(lambda n: n.role == "prompt", path.nodes))
    own, loss_mask = path.loss_mask[start:], path.loss_mask[start:] & (advantage is not None)
    credit = np.zeros(len(own), np.float32)
    if advantage is not None:
        credit[own] = advantage
    version = path.version[start:][own]
    return Row(
        prompt=path.actions[:start].tolist(), completion=path.actions[start:].tolist(),
        logp=np.where(own, path.sampling_logprob[start:], 0.0).tolist(), mask=loss_mask.astype(int).tolist(),
        advantage=credit.tolist(), reward=float(leaf.scores["reward"]), version=int(version.min(initial=2**31 - 1)),
        item=tree.item,
    )  # fmt: skip
