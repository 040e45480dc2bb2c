"""From advantages per path to the two channels per action, and to the paths themselves.

An action shared by many leaves is trained once; what each leaf would have said about it is summed here, positive and
negative parts apart. For a clipped surrogate Σ w·min(r·A, clip(r)·A) = gain·min(r, 1+ε) + loss·max(r, 1−ε) exactly,
so the packed tree has the gradient of the batch with every path written out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.needs import check_needs
from rolltree.credit.registry import resolve
from rolltree.tree.table import Bools, Floats, Ints, Table, table
from rolltree.tree.tree import Tree

Averaging = Literal["token", "sequence", "group", "fixed"]
"""What one leaf's action weighs: 1/Σ lengths, 1/(leaves · length), mean over trees of token means, or a constant."""

Multiplicity = Literal["per_leaf", "once", "sqrt"]
"""How often an action shared by d leaves is trained on: d times, once, or √d times."""


Unit = Literal["path", "attempt"]
"""What is one sequence to an objective with a ratio per sequence: all that was written on a path, or each attempt."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Flat per-action arrays (`Table.start` gives each node's offset); zero where an action is not trained on."""

    gain: Floats
    loss: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class Expanded:
    """Every trained path written out over the flat actions, for objectives whose ratios or bounds belong to a path."""

    index: Ints
    """(P,) flat action, path after path."""
    path: Ints
    """(P,) which path, non-decreasing from 0."""
    advantage: Floats
    """(P,)"""
    weight: Floats
    """(paths,) weight of each of a path's actions."""
    leaf: Ints
    """(paths,) index into `Table.leaf`."""
    share: Floats | None = None
    """(P,) the part of its path's weight that each action keeps; None = all of it ("per_leaf")."""


def prompt_weighted(table: Table, advantage: Advantage) -> Advantage:
    """Advantages of each tree times its prompt's score `prompt_weight`; as they are where no prompt has one."""
    weight = table.score("prompt_weight")[table.root]
    if not np.isfinite(weight).any():
        return advantage
    per_tree = np.where(np.isfinite(weight), weight, 1.0)
    return replace(
        advantage,
        leaf=_weighted(advantage.leaf, per_tree[table.leaf_tree]),
        node=_weighted(advantage.node, per_tree[table.tree]),
        action=_weighted(advantage.action, np.repeat(per_tree[table.tree], table.length)),
    )


def leaf_weights(
    table: Table, averaging: Averaging, *, counted: Bools | None = None, fixed_length: int | None = None
) -> Floats:
    """Weight per leaf of each action on its path. Over the step they sum to one, except with "fixed" (Dr. GRPO).

    "token" is one mean over all actions of all paths; "sequence" the mean over leaves of their means (GRPO as
    published); "group" the mean over trees of a tree's token mean; "fixed" divides by leaves · `fixed_length`. Leaves
    that are not live, not counted, or have no trained action weigh 0; only "fixed" still counts the empty ones.
    """
    use = table.live if counted is None else table.live & counted
    length = table.loss_tokens.astype(np.float64)
    filled = use & (length > 0)
    if averaging == "fixed":
        if fixed_length is None or fixed_length < 1:
            raise CreditError(f'averaging "fixed" needs a positive fixed_length, got {fixed_length}')
        return _share(filled, np.full(len(use), float(fixed_length) * max(int(use.sum()), 1)))
    if averaging == "token":
        return _share(filled, np.full(len(use), length[filled].sum()))
    if averaging == "sequence":
        return _share(filled, length * max(int(filled.sum()), 1))
    if averaging == "group":
        per_tree = np.bincount(table.leaf_tree[filled], length[filled], minlength=len(table.trees)).astype(np.float64)
        return _share(filled, per_tree[table.leaf_tree] * max(int((per_tree > 0).sum()), 1))
    raise CreditError(f'averaging {averaging!r} is unknown; choose "token", "sequence", "group" or "fixed"')


def fold(table: Table, advantage: Advantage, weights: Floats, multiplicity: Multiplicity = "per_leaf") -> Folded:
    """Sum w·max(A, 0), w·min(A, 0) and w over the leaves below each action.

    Without an action term the sum is one per node; with one it runs over the leaves of every shared action, because
    the sign of factor·(leaf + node) + action can differ from leaf to leaf.
    """
    taught = _weights_of(table, advantage, weights)
    _check(table, advantage, taught)
    trained_below = np.rint(table.below((taught > 0).astype(np.float64)))
    use = table.trainable & (table.length > 0) & (trained_below > 0)
    leaf = _or_zero(advantage.leaf, taught > 0)
    node = np.zeros(len(table.nodes)) if advantage.node is None else advantage.node
    factor = np.ones(table.actions) if advantage.factor is None else advantage.factor
    share = _times(trained_below, multiplicity)
    if advantage.action is None:
        rows = np.flatnonzero(use)
        sums = np.zeros((3, len(table.nodes)))
        sums[:, rows] = _over_leaves(table, rows, taught, leaf, node[rows], None, None)
        gain, loss, weight = (np.repeat(s / share, table.length) for s in sums)
        gain, loss = gain * factor, loss * factor
    else:
        at = np.flatnonzero(np.repeat(use, table.length) & table.loss_mask)
        rows = np.repeat(np.arange(len(table.nodes)), table.length)[at]
        sums = np.zeros((3, table.actions))
        sums[:, at] = (
            _over_leaves(table, rows, taught, leaf, node[rows], factor[at], advantage.action[at]) / share[rows]
        )
        gain, loss, weight = sums
    for array in (gain, loss, weight):
        array[~table.loss_mask] = 0.0
    return Folded(gain, loss, weight)


def write(table: Table, folded: Folded) -> None:
    """Put the channels on the nodes (float32); nodes that do not train get None."""
    flat = [a.astype(np.float32) for a in (folded.gain, folded.loss, folded.weight)]
    for i, (node, start, length) in enumerate(zip(table.nodes, table.start, table.length, strict=True)):
        stop = start + length
        node.gain, node.loss, node.weight = (a[start:stop] for a in flat) if table.trainable[i] else (None, None, None)


def expand(
    table: Table, advantage: Advantage, weights: Floats, multiplicity: Multiplicity = "per_leaf",
    unit: Unit = "path",
) -> Expanded:  # fmt: skip
    """Every path with a weight, as positions in the flat actions with the advantage each has on this path.

    Summed over the paths, weight · share · advantage gives the two channels of `fold` with the same multiplicity. With
    `unit` "attempt" the sequences are the attempts, each once, with the mean of what the leaves below say.
    """
    taught = _weights_of(table, advantage, weights)
    _check(table, advantage, taught)
    rows, leaves = table.pairs()
    keep = (taught[leaves] > 0) & table.trainable[rows]
    rows, leaves = rows[keep], leaves[keep]
    order = np.argsort(leaves, kind="stable")
    rows, leaves = rows[order], leaves[order]
    length = table.length[rows]
    offset = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    index = np.repeat(table.start[rows], length) + offset
    row, leaf = np.repeat(rows, length), np.repeat(leaves, length)
    loss_mask = table.loss_mask[index]
    index, row, leaf = index[loss_mask], row[loss_mask], leaf[loss_mask]
    value = _or_zero(advantage.leaf, taught > 0)[leaf]
    if advantage.node is not None:
        value = value + advantage.node[row]
    if advantage.factor is not None:
        value = value * advantage.factor[index]
    if advantage.action is not None:
        value = value + advantage.action[index]
    if unit == "attempt":
        return _attempts(table, index, row, leaf, value, taught)
    paths, path = np.unique(leaf, return_inverse=True)
    share = None
    if multiplicity != "per_leaf":
        share = 1.0 / _times(np.rint(table.below((taught > 0).astype(np.float64))), multiplicity)[row]
    return Expanded(index, path.astype(np.int64), value, taught[paths], paths, share)


def _attempts(table: Table, index: Ints, row: Ints, leaf: Ints, value: Floats, taught: Floats) -> Expanded:
    """Entries by attempt: what was written between one question and the next."""
    first = np.arange(len(table.nodes))
    for level in table.levels[1:]:
        above = table.parent[level]
        joined = table.trainable[level] & table.trainable[above]
        first[level] = np.where(joined, first[above], level)
    found, at = np.unique(index, return_inverse=True)
    said = np.bincount(at)
    order = np.lexsort((found, first[row][_firsts(at)]))
    mean, weight = np.bincount(at, value) / said, np.bincount(at, taught[leaf]) / said
    ends = row[_firsts(at)][order]
    heads, path = np.unique(first[ends], return_inverse=True)
    begins = np.searchsorted(path, np.arange(len(heads)))
    return Expanded(
        found[order], path.astype(np.int64), mean[order], weight[order][begins], leaf[_firsts(at)][order][begins]
    )


def _firsts(numbers: Ints) -> Ints:
    """Where each of 0, 1, 2, … stands first."""
    return np.unique(numbers, return_index=True)[1]


def _over_leaves(
    table: Table, rows: Ints, weights: Floats, leaf: Floats, node: Floats, factor: Floats | None, action: Floats | None
) -> Floats:
    """Gain, loss and weight of each entry of `rows`, adding one leaf below each at a time, in leaf order."""
    out = np.zeros((3, len(rows)))
    first, count = table.leaf_lo[rows], (table.leaf_hi - table.leaf_lo)[rows]
    here = np.arange(len(rows))
    for k in range(int(count.max(initial=0))):
        here = here[count[here] > k]
        at = first[here] + k
        value = leaf[at] + node[here]
        if factor is not None and action is not None:
            value = value * factor[here] + action[here]
        w = weights[at]
        out[0, here] += w * np.maximum(value, 0.0)
        out[1, here] += w * np.minimum(value, 0.0)
        out[2, here] += w
    return out


def _weighted(term: Floats | None, weight: Floats) -> Floats | None:
    return None if term is None else term * weight


def _times(trained_below: Floats, multiplicity: Multiplicity) -> Floats:
    """What the sum over the leaves below each node is divided by."""
    if multiplicity == "per_leaf":
        return np.ones_like(trained_below)
    below = np.maximum(trained_below, 1.0)
    return below if multiplicity == "once" else np.sqrt(below)


def _share(use: Bools, denominator: Floats) -> Floats:
    return np.divide(1.0, denominator, out=np.zeros(len(use)), where=use)


def _or_zero(values: Floats | None, where: Bools) -> Floats:
    return np.zeros(len(where)) if values is None else np.where(where, values, 0.0)


def _weights_of(table: Table, advantage: Advantage, weights: Floats) -> Floats:
    if len(weights) != len(table.leaf):
        raise CreditError(f"weights have {len(weights)} entries for {len(table.leaf)} leaves; use leaf_weights(table)")
    use = table.live if advantage.counted is None else table.live & advantage.counted
    return np.where(use, weights, 0.0)


def _check(table: Table, advantage: Advantage, taught: Floats) -> None:
    sizes = {"leaf": len(table.leaf), "node": len(table.nodes), "action": table.actions, "factor": table.actions}
    trained_nodes = table.below((taught > 0).astype(np.float64)) > 0
    for name, size in sizes.items():
        values: Floats | None = getattr(advantage, name)
        if values is None:
            continue
        if values.shape != (size,):
            raise CreditError(
                f"the {name} term has shape {values.shape}, the table needs ({size},); is it of this table?"
            )
        bad = ~np.isfinite(values)
        if not bad.any() and (name != "factor" or (values >= 0).all()):
            continue
        if name == "leaf":
            rows = table.leaf[bad & (taught > 0)]
        elif name == "node":
            rows = np.flatnonzero(bad & trained_nodes & table.trainable)
        else:
            wrong = bad | (values < 0) if name == "factor" else bad
            per_action = np.repeat(np.arange(len(table.nodes)), table.length)
            rows = per_action[wrong & table.loss_mask & trained_nodes[per_action]]
        if len(rows):
            node, tree = table.nodes[rows[0]], table.trees[table.tree[rows[0]]]
            raise CreditError(
                f"the {name} term is {'negative or ' if name == 'factor' else ''}not finite at node {node.id} "
                f"of tree {tree.id!r}; check the scores it was made from"
            )


# From trees to the channels a trainer reads, in one call.


@dataclass(frozen=True, slots=True)
class Assigned:
    """Everything between the trees and their nodes' `gain`, `loss` and `weight`."""

    table: Table
    advantage: Advantage
    weights: Floats
    folded: Folded


def assign(
    trees: Iterable[Tree], credit: Credit | str, *, averaging: Averaging = "token", fixed_length: int | None = None,
    multiplicity: Multiplicity = "per_leaf",
) -> Assigned:  # fmt: skip
    """Check the credit's needs, compute it on the trees as one step, fold it and write it on the nodes."""
    tab = table(trees)
    chosen = resolve(credit)
    check_needs(tab, chosen)
    advantage = chosen(tab)
    weights = leaf_weights(tab, averaging, counted=advantage.counted, fixed_length=fixed_length)
    folded = fold(tab, advantage, weights, multiplicity)
    write(tab, folded)
    return Assigned(tab, advantage, weights, folded)
