"""A columnar view of a forest: what credit, packing and reports compute on.

Rows are nodes depth first, tree after tree, so parents precede children, a subtree is a slice of rows, and the leaves
below a node are a slice of the leaves. Sums below are sums of slices, sums along paths go level by level; no recursion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.node import Node
from rolltree.tree.tree import Tree

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Table:
    """Arrays over the nodes (N), leaves (L) and actions (A) of some trees. Build it with `table(trees)`."""

    trees: tuple[Tree, ...]
    nodes: tuple[Node, ...]
    tree: Ints
    """Index into `trees`, per node."""
    parent: Ints
    """Row of the parent, -1 at roots."""
    end: Ints
    """Row after the last descendant: the subtree of row i is i:end[i]."""
    depth: Ints
    length: Ints
    """Number of actions."""
    trainable: Bools

    @cached_property
    def start(self) -> Ints:
        """Offset of each node's first action in a flat array over all actions."""
        return np.concatenate([[0], np.cumsum(self.length)[:-1]]) if len(self.nodes) else np.zeros(0, np.int64)

    @property
    def actions(self) -> int:
        """Number of actions in all nodes: the size of flat per-action arrays."""
        return int(self.length.sum())

    @cached_property
    def is_leaf(self) -> Bools:
        """Nodes without children."""
        return self.end == np.arange(len(self.nodes)) + 1

    @cached_property
    def leaf(self) -> Ints:
        """Rows of the leaves, in row order."""
        return np.flatnonzero(self.is_leaf)

    @cached_property
    def _leaf_count(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.is_leaf)])

    @cached_property
    def leaf_lo(self) -> Ints:
        """First leaf (index into `leaf`) at or below each node."""
        return self._leaf_count[:-1]

    @cached_property
    def leaf_hi(self) -> Ints:
        """One past the last leaf at or below each node."""
        return self._leaf_count[self.end]

    @cached_property
    def levels(self) -> tuple[Ints, ...]:
        """Rows at each depth, from the roots down."""
        order = np.argsort(self.depth, kind="stable")
        return tuple(np.split(order, np.cumsum(np.bincount(self.depth))[:-1])) if len(order) else ()

    @cached_property
    def root(self) -> Ints:
        """Row of each tree's root."""
        return np.flatnonzero(self.parent < 0)

    @cached_property
    def leaf_tree(self) -> Ints:
        """Tree index per leaf."""
        return self.tree[self.leaf]

    @cached_property
    def live(self) -> Bools:
        """Per leaf: finished, neither pruned nor failed nor dropped, and with an outcome."""
        ok = (self.nodes[i] for i in self.leaf)
        return np.fromiter(
            (n.status == "done" and not n.usage.startswith("dropped") and "reward" in n.scores for n in ok), np.bool_
        )

    def score(self, name: str) -> Floats:
        """A named score per node; NaN where it was not given."""
        return np.fromiter((n.scores.get(name, np.nan) for n in self.nodes), np.float64, len(self.nodes))

    @cached_property
    def reward(self) -> Floats:
        """Outcome per leaf; NaN where there is none."""
        return np.fromiter((self.nodes[i].scores.get("reward", np.nan) for i in self.leaf), np.float64, len(self.leaf))

    def with_reward(self, values: Floats) -> Table:
        """This table with other outcomes per leaf, everything else shared: how rewards are shaped before credit."""
        other = replace(self)
        vars(other).update(vars(self))
        vars(other)["reward"] = values
        return other

    def flat(self, name: str, fill: float = np.nan) -> Floats:
        """A per-action array of every node laid end to end; `fill` where a node has none."""
        out = np.full(self.actions, fill, np.float64)
        for i, node in enumerate(self.nodes):
            array = getattr(node, name)
            if array is not None:
                out[self.start[i] : self.start[i] + self.length[i]] = array
        return out

    def per_action(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Repeat one value per node over its actions."""
        return np.repeat(values, self.length)

    @cached_property
    def loss_mask(self) -> Bools:
        """Per action: of a trained node and not masked by `keep`."""
        out = np.repeat(self.trainable, self.length)
        for i, node in enumerate(self.nodes):
            if node.keep is not None:
                out[self.start[i] : self.start[i] + self.length[i]] &= node.keep
        return out

    def below(self, leaf_values: Floats) -> Floats:
        """Per node, the sum of a value over the leaves at or below it."""
        if not len(self.nodes):
            return np.zeros(0)
        # Sums of slices, not differences of running sums: one tree's NaN or 1e9 must not reach the others.
        bounds = np.stack([self.leaf_lo, self.leaf_hi], axis=1).ravel()
        return np.add.reduceat(np.append(leaf_values, 0.0), bounds)[::2]

    def down(self, node_values: Floats) -> Floats:
        """Per node, the sum of a value over the path from its root to itself."""
        out = np.array(node_values, np.float64)
        for rows in self.levels[1:]:
            out[rows] += out[self.parent[rows]]
        return out

    @cached_property
    def teaching(self) -> Ints:
        """Number of teaching actions on each leaf's path."""
        counts = np.add.reduceat(np.append(self.loss_mask, False), self.start) if len(self.nodes) else np.zeros(0)
        per_node = np.where(self.length > 0, counts, 0).astype(np.float64)
        return np.rint(self.down(per_node)[self.leaf]).astype(np.int64)

    def pairs(self) -> tuple[Ints, Ints]:
        """Every (node row, leaf index) with the leaf at or below the node: nodes repeated, leaves in order."""
        counts = self.leaf_hi - self.leaf_lo
        rows = np.repeat(np.arange(len(self.nodes)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self.leaf_lo[rows] + within


def table(trees: Iterable[Tree]) -> Table:
    """The columnar view of some trees as they stand now; later growth is not seen."""
    all_trees = tuple(trees)
    nodes: list[Node] = []
    tree_of: list[int] = []
    parent: list[int] = []
    depth: list[int] = []
    for t, tree in enumerate(all_trees):
        row: dict[int, int] = {}
        for node in tree.walk():
            row[node.id] = len(nodes)
            above = -1 if node.parent is None else row[node.parent]
            parent.append(above)
            depth.append(0 if above < 0 else depth[above] + 1)
            tree_of.append(t)
            nodes.append(node)
    end = np.arange(1, len(nodes) + 1)
    parents = np.asarray(parent, np.int64)
    for i in range(len(nodes) - 1, -1, -1):
        above = parents[i]
        if above >= 0 and end[i] > end[above]:
            end[above] = end[i]
    return Table(
        trees=all_trees,
        nodes=tuple(nodes),
        tree=np.asarray(tree_of, np.int64),
        parent=parents,
        end=end,
        depth=np.asarray(depth, np.int64),
        length=np.fromiter((len(n.actions) for n in nodes), np.int64, len(nodes)),
        trainable=np.fromiter((n.trainable for n in nodes), np.bool_, len(nodes)),
    )
