"""Trees as one packed row: every node's actions once, depth first, at the position its depth gives it.

A policy computes the log-prob of each target from the row position of the action before it on its path, which for the
first action of a node is the last action of its parent. Rows that are neither seen by a target nor needed to predict
one are left out: branches without a trained action, and whatever stands behind the last target of a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.policy.blocks import Block, blocks
from rolltree.tree.node import Array, join_actions
from rolltree.tree.table import Bools, Ints, Table


class PackError(RolltreeError, ValueError):
    """A forest that cannot be laid out: names the tree, the node and the way out."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Runs of nodes without a fork between them, in row order."""

    length: Ints
    subtree: Ints
    """Tokens in the span and everything below it."""

    def blocks(self) -> list[Block]:
        """What attends to what."""
        return blocks(self.length.tolist(), self.subtree.tolist())

    def last(self) -> Ints:
        """Per token, the row after the last one that may see it: a query q sees a key k iff k ≤ q < last[k]."""
        start = np.cumsum(self.length) - self.length
        return np.repeat(start + self.subtree, self.length)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One row of N actions, U of which predict the T targets."""

    actions: Array
    """(N, …) as the nodes hold them; one object each where they have several shapes (tokens under latents)."""
    position: Ints
    """(N,) distance from the root."""
    spans: Spans
    reads: Ints
    """(U,) ascending rows whose output is needed."""
    read: Ints
    """(T,) index into `reads` of the row that predicts each target."""
    target: Array
    """(T, …) the action taken."""
    action: Ints
    """(T,) ascending index into the table's flat actions."""

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def tokens(self) -> Ints:
        """(N,) the actions of a row of tokens; every other is refused."""
        return _tokens(self.actions)

    @property
    def target_tokens(self) -> Ints:
        """(T,) the targets of such a row."""
        return _tokens(self.target)

    @property
    def root(self) -> Ints:
        """(N,) the row in which each row's tree begins."""
        return np.maximum.accumulate(np.where(self.position == 0, np.arange(len(self)), 0))


def blank() -> Packed:
    """A row of two tokens, for passes that teach nothing."""
    one, none = np.ones(1, np.int64), np.zeros(1, np.int64)
    return Packed(np.zeros(2, np.int64), np.arange(2), Spans(2 * one, 2 * one), none, none, none, none)


def needed(table: Table, targets: Bools) -> tuple[Bools, Ints]:
    """Which nodes a row must hold for these targets (flat, per action), and how many of each node's actions."""
    running = np.concatenate([[0], np.cumsum(targets)])
    stop = table.start + table.length
    below = running[_flat_end(table)] - running[table.start]
    own = running[stop] - running[table.start]
    at = np.flatnonzero(targets)
    last = np.zeros(len(table.nodes), np.int64)
    node_of = np.searchsorted(table.start, at, side="right") - 1
    np.maximum.at(last, node_of, at - table.start[node_of])
    # A node with targets further down is read to its end; in any other, the last target is predicted and never read.
    return below > 0, np.where(below > own, table.length, last)


def pack(table: Table, targets: Bools) -> Packed:
    """Lay out what is needed to compute the log-prob of every target (flat, per action)."""
    use, keep = needed(table, targets)
    rows = np.flatnonzero(use)
    keep = keep[rows]
    start = np.cumsum(keep) - keep
    row_of = np.full(len(table.nodes) + 1, -1)
    row_of[rows] = np.arange(len(rows))
    parent = row_of[table.parent[rows]]
    offset, before = _above(parent, keep, start)
    within = np.arange(int(keep.sum())) - np.repeat(start, keep)
    flat = np.repeat(table.start[rows], keep) + within
    actions = _actions(table)
    action = np.flatnonzero(targets)
    owner = row_of[np.searchsorted(table.start, action, side="right") - 1]
    # Empty nodes share their start with the next one; the search above lands on the last of them, which is not empty.
    place = action - table.start[rows[owner]]
    predictor = np.where(place > 0, start[owner] + place - 1, before[owner])
    if (predictor < 0).any():
        node = table.nodes[rows[owner[np.argmax(predictor < 0)]]]
        tree = table.trees[table.tree[rows[owner[np.argmax(predictor < 0)]]]]
        raise PackError(
            f"the first action of node {node.id} in tree {tree.id!r} has nothing before it, so no policy can "
            "predict it; give the prompt at least one token"
        )
    reads, read = np.unique(predictor, return_inverse=True)
    return Packed(
        actions=actions[flat],
        position=np.repeat(offset, keep) + within,
        spans=_spans(parent, keep, table.end[rows], rows),
        reads=reads,
        read=read.astype(np.int64),
        target=actions[action],
        action=action,
    )


def _flat_end(table: Table) -> Ints:
    starts = np.append(table.start, table.actions)
    return starts[table.end]


def _actions(table: Table) -> Array:
    actions = join_actions([node.actions for node in table.nodes])
    return actions.astype(np.int64) if actions.dtype.kind in "iu" else actions


def _tokens(actions: Array) -> Ints:
    if actions.dtype.kind not in "iu" or actions.ndim != 1:
        kind = "actions of several shapes" if actions.dtype.kind == "O" else f"{actions.dtype} of {actions.shape[1:]}"
        raise PackError(
            f"a language policy reads token ids, and these trees hold {kind}; train the policy that wrote them"
        )
    return actions


def _above(parent: Ints, keep: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Per node, the tokens before it on its path, and the row of the last of them (-1 = none)."""
    offset, before = np.zeros(len(parent), np.int64), np.full(len(parent), -1)
    for i, above in enumerate(parent):
        if above >= 0:
            offset[i] = offset[above] + keep[above]
            before[i] = start[above] + keep[above] - 1 if keep[above] else before[above]
    return offset, before


def _spans(parent: Ints, keep: Ints, end: Ints, rows: Ints) -> Spans:
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    opens = (parent < 0) | (children[parent] != 1)
    span = np.cumsum(opens) - 1
    first = np.flatnonzero(opens)
    total = np.concatenate([[0], np.cumsum(keep)])
    subtree = total[np.searchsorted(rows, end[first])] - total[first]
    return Spans(np.bincount(span, keep, minlength=len(first)).astype(np.int64), subtree)
