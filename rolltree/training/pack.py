"""From credited trees to micro-batches: packed rows under a token budget, and what an objective sees of each.

Trees are never cut apart while they fit. One that exceeds the budget is divided by leaves; what its parts share is read
in each of them and, for token-level objectives, trained in the first only. For path-level objectives every path
stands whole in one micro-batch. Either way the sum of the parts is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.credit.fold import Expanded, Folded
from rolltree.objective.batch import Batch, Paths
from rolltree.policy.packed import Packed, needed, pack
from rolltree.policy.protocol import PolicyRead
from rolltree.tree.table import Bools, Floats, Ints, Table


@dataclass(frozen=True, slots=True, eq=False)
class Micro:
    """One packed row and its T targets."""

    packed: Packed
    gain: Floats
    loss: Floats
    weight: Floats
    engine: Floats
    """(T,) the policy's log-prob as the engine computed it; NaN where it is unknown."""
    sampled: Floats
    """(T,) log-prob under the distribution really sampled from; NaN where there is none."""
    version: Ints
    """(T,) weight version that wrote the action; -1 where unknown."""
    forced: Bools
    trees: Ints
    """Rows of `Table.trees` it draws on."""
    paths: Expanded | None = None
    """Paths over this micro-batch's targets."""
    group: Ints | None = None
    """(paths,) tree of each path."""


def micro_batches(
    table: Table,
    folded: Folded,
    budget: int,
    *,
    paths: Expanded | None = None,
    whole_trees: bool = False,
    trees: Sequence[int] | None = None,
) -> list[Micro]:
    """Pack what carries weight into rows of at most `budget` tokens (a single longer path stands alone).

    `trees` selects some of the table's trees; `whole_trees` forbids dividing one (objectives that compare paths).
    """  # fmt: skip
    signals = _signals(table, folded)
    taught = folded.weight > 0 if paths is None else _reached(table, paths)
    chosen = np.ones(len(table.trees), np.bool_)
    if trees is not None:
        chosen[:] = False
        chosen[list(trees)] = True
    taught &= table.per_action(chosen[table.tree]).astype(np.bool_)
    if not taught.any():
        return []
    use, keep = needed(table, taught)
    cost = np.bincount(table.tree[use], keep[use], minlength=len(table.trees)).astype(np.int64)
    out: list[Micro] = []
    bin_trees: list[int] = []
    filled = 0
    for tree in np.flatnonzero(cost):
        size = int(cost[tree])
        if bin_trees and filled + size > budget:
            out.append(_whole(table, signals, taught, bin_trees, paths))
            bin_trees, filled = [], 0
        if size > budget and not whole_trees:
            out.extend(_divided(table, signals, taught, tree=int(tree), budget=budget, paths=paths))
            continue
        bin_trees.append(int(tree))
        filled += size
    if bin_trees:
        out.append(_whole(table, signals, taught, bin_trees, paths))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Signals:
    gain: Floats
    loss: Floats
    weight: Floats
    engine: Floats
    sampled: Floats
    version: Ints
    forced: Bools


def _signals(table: Table, folded: Folded) -> _Signals:
    forced = table.per_action(np.fromiter((n.forced for n in table.nodes), np.bool_, len(table.nodes)))
    return _Signals(
        folded.gain, folded.loss, folded.weight, table.flat("logp"), table.flat("sampling_logprob"),
        table.flat("version", -1.0).astype(np.int64), forced.astype(np.bool_),
    )  # fmt: skip


def _reached(table: Table, paths: Expanded) -> Bools:
    out = np.zeros(table.actions, np.bool_)
    out[paths.index] = True
    return out


def _whole(table: Table, signals: _Signals, taught: Bools, trees: list[int], paths: Expanded | None) -> Micro:
    inside = np.zeros(len(table.trees), np.bool_)
    inside[trees] = True
    targets = taught & table.per_action(inside[table.tree]).astype(np.bool_)
    chosen = None if paths is None else np.flatnonzero(inside[table.leaf_tree[paths.leaf]])
    return _micro(table, signals, targets, paths=paths, chosen=chosen)


def _divided(
    table: Table, signals: _Signals, taught: Bools, *, tree: int, budget: int, paths: Expanded | None
) -> list[Micro]:
    leaves = (
        np.flatnonzero(table.leaf_tree == tree) if paths is None else paths.leaf[table.leaf_tree[paths.leaf] == tree]
    )
    known: set[int] = set()
    done: set[int] = set()
    parts: list[list[int]] = []
    filled = 0
    for leaf in leaves.tolist():
        lineage = _lineage(table, int(table.leaf[leaf]))
        extra = int(table.length[[r for r in lineage if r not in known]].sum()) if known else 0
        if not known or filled + extra > budget:
            parts.append([])
            known, filled, extra = set(), 0, int(table.length[lineage].sum())
        parts[-1].append(leaf)
        known.update(lineage)
        filled += extra
    out: list[Micro] = []
    for part in parts:
        rows = {r for leaf in part for r in _lineage(table, int(table.leaf[leaf]))}
        fresh = taught & _inside(table, rows - done)
        targets = fresh if paths is None else taught & _inside(table, rows)
        done |= rows
        if targets.any():
            chosen = None if paths is None else np.flatnonzero(np.isin(paths.leaf, part))
            out.append(_micro(table, signals, targets, paths=paths, chosen=chosen, fresh=fresh))
    return out


def _inside(table: Table, rows: set[int]) -> Bools:
    flags = np.zeros(len(table.nodes), np.bool_)
    flags[list(rows)] = True
    return table.per_action(flags).astype(np.bool_)


def _lineage(table: Table, row: int) -> list[int]:
    out: list[int] = []
    while row >= 0:
        out.append(row)
        row = int(table.parent[row])
    return out


def _micro(
    table: Table, signals: _Signals, targets: Bools, *,
    paths: Expanded | None, chosen: Ints | None, fresh: Bools | None = None,
) -> Micro:  # fmt: skip
    packed = pack(table, targets)
    at = packed.action
    # What several parts of a tree share keeps its own weight in the first only, so that penalties count it once.
    once = np.ones(len(at)) if fresh is None else fresh[at].astype(np.float64)
    micro = Micro(
        packed, signals.gain[at] * once, signals.loss[at] * once, signals.weight[at] * once, signals.engine[at],
        signals.sampled[at], signals.version[at], signals.forced[at],
        np.unique(table.tree[np.searchsorted(table.start, at, side="right") - 1]),
    )  # fmt: skip
    if paths is None or chosen is None:
        return micro
    mine = np.isin(paths.path, chosen)
    place = np.full(table.actions, -1)
    place[at] = np.arange(len(at))
    written = Expanded(
        place[paths.index[mine]], np.searchsorted(chosen, paths.path[mine]), paths.advantage[mine],
        paths.weight[chosen], paths.leaf[chosen], None if paths.share is None else paths.share[mine],
    )  # fmt: skip
    return replace(micro, paths=written, group=table.leaf_tree[written.leaf])


@dataclass(frozen=True, slots=True)
class Anchors:
    """(T,) log-probs of a micro-batch under policies that stay fixed during the step."""

    old: Tensor | None = None
    """Under the weights at the start of the step; None = this is the step's only update, so the current ones."""
    reference: Tensor | None = None
    previous: Tensor | None = None
    ewma: Tensor | None = None


NO_ANCHORS = Anchors()
"""For a step of one update by an objective that compares with no other policy."""


def objective_batch(
    micro: Micro, read: PolicyRead, anchors: Anchors = NO_ANCHORS, version: int = 0, scale: float = 1.0
) -> Batch:
    """The batch of one micro-batch; `scale` multiplies all weights (a minibatch stands for the whole step)."""
    to = _placer(read.logp)
    old = read.logp.detach() if anchors.old is None else anchors.old
    staleness = np.where(micro.version < 0, -1, version - micro.version)
    return Batch(
        logp=read.logp, old=old, gain=to(micro.gain * scale), loss=to(micro.loss * scale),
        weight=to(micro.weight * scale), sampled=to(micro.sampled), reference=anchors.reference,
        entropy=read.entropy, staleness=torch.from_numpy(staleness).to(old.device), previous=anchors.previous,
        ewma=anchors.ewma,
        forced=torch.from_numpy(micro.forced).to(old.device), logits=read.logits, paths=_paths(micro, to, scale),
    )  # fmt: skip


def _paths(micro: Micro, to: Callable[[Any], Tensor], scale: float) -> Paths | None:
    p = micro.paths
    if p is None:
        return None
    assert micro.group is not None
    whole = [torch.from_numpy(a).to(to(p.weight).device) for a in (p.index, p.path, micro.group)]
    share = None if p.share is None else to(p.share)
    return Paths(whole[0], whole[1], to(p.advantage), to(p.weight * scale), len(p.weight), whole[2], share)


def _placer(like: Tensor) -> Callable[[Any], Tensor]:
    return lambda array: torch.from_numpy(np.asarray(array)).to(like.device, like.dtype)
