"""Trees in memory as columns: what credit, packing and metrics compute on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.node import CUT, Array, Node, join_actions
from rolltree.tree.shape import Bools, Floats, Ints, Shape, offsets
from rolltree.tree.source import EventColumns, Notes
from rolltree.tree.tree import Tree

__all__ = ["Bools", "Floats", "Ints", "Table", "table"]


class Table(Shape):
    """Arrays over the nodes (N), leaves (L) and actions (A) of some trees. Build it with `table(trees)`."""

    def __init__(self, trees: tuple[Tree, ...], nodes: tuple[Node, ...], tree: Ints, parent: Ints) -> None:
        super().__init__(tree, parent)
        self.trees = trees
        self.nodes = nodes
        self.length: Ints = np.fromiter((len(n.actions) for n in nodes), np.int64, len(nodes))
        """Number of actions."""
        self.trainable: Bools = np.fromiter((n.trainable for n in nodes), np.bool_, len(nodes))

    @cached_property
    def start(self) -> Ints:
        """Offset of each node's first action in a flat array over all actions."""
        return offsets(self.length)[:-1]

    @property
    def actions(self) -> int:
        """Number of actions in all nodes: the size of flat per-action arrays."""
        return int(self.length.sum())

    @cached_property
    def live(self) -> Bools:
        """Per leaf: finished, neither pruned nor failed nor dropped, and with an outcome."""
        ok = (self.nodes[i] for i in self.leaf)
        return np.fromiter(
            (n.status == "done" and not n.usage.startswith("dropped") and "reward" in n.scores for n in ok), np.bool_
        )

    @cached_property
    def cut(self) -> Bools:
        """Per leaf: finished by a limit, not by itself."""
        return np.fromiter(
            (n.status == "done" and n.finish in CUT for n in (self.nodes[i] for i in self.leaf)), np.bool_
        )

    def score(self, name: str) -> Floats:
        """A named score per node; NaN where it was not given."""
        return np.fromiter((n.scores.get(name, np.nan) for n in self.nodes), np.float64, len(self.nodes))

    @cached_property
    def reward(self) -> Floats:
        """Outcome per leaf; NaN where there is none."""
        return self.score("reward")[self.leaf]

    def with_reward(self, values: Floats) -> Table:
        """This table with other outcomes per leaf, everything else shared: how rewards are shaped before credit."""
        other = copy(self)
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

    def below(self, leaf_values: NDArray[Any]) -> Floats:
        """Per node, the sum of a value over the leaves at or below it."""
        return super().below(np.asarray(leaf_values, np.float64))

    def down(self, node_values: NDArray[Any]) -> Floats:
        """Per node, the sum of a value over the path from its root to itself."""
        return super().down(np.asarray(node_values, np.float64))

    @cached_property
    def loss_tokens(self) -> Ints:
        """Number of trained actions on each leaf's path."""
        counts = np.add.reduceat(np.append(self.loss_mask, False), self.start) if len(self.nodes) else np.zeros(0)
        per_node = np.where(self.length > 0, counts, 0).astype(np.float64)
        return np.rint(self.down(per_node)[self.leaf]).astype(np.int64)

    def pairs(self) -> tuple[Ints, Ints]:
        """Every (node row, leaf index) with the leaf at or below the node: nodes repeated, leaves in order."""
        counts = self.leaf_count
        rows = np.repeat(np.arange(len(self.nodes)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self.leaf_lo[rows] + within

    # -- columns, as an archive has them (`rolltree.tree.source`) ----------------------------------------------

    @property
    def shape(self) -> Shape:
        """Itself."""
        return self

    @property
    def ids(self) -> Sequence[str]:
        """Names of the trees."""
        return [t.id for t in self.trees]

    def numbers(self, name: str, missing: Any = None) -> Array:
        """A column of numbers or truth values."""
        if name == "length":
            return self.length
        return np.array([missing if v is None else v for v in (getattr(n, name) for n in self.nodes)])

    def words(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as codes and words."""
        code: dict[str, int] = {}
        found = (getattr(n, name) for n in self.nodes)
        codes = [-1 if v is None else code.setdefault(v, len(code)) for v in found]
        return np.array(codes, np.int64), list(code)

    def scores(self, name: str) -> Floats:
        """A named score per node; NaN where it was not given."""
        return self.score(name)

    def score_names(self) -> set[str]:
        """Names of all scores given anywhere."""
        return set(chain.from_iterable(n.scores for n in self.nodes))

    def ragged(self, name: str) -> tuple[Array, Ints]:
        """A per-action column laid end to end, and the rows' offsets; a node without it has no entries."""
        found = [getattr(n, name) for n in self.nodes]
        present = [a for a in found if a is not None]
        values = (join_actions(present) if name == "actions" else np.concatenate(present)) if present else np.zeros(0)
        return values, offsets([0 if a is None else len(a) for a in found])

    def notes(self, rows: Ints) -> Iterator[Notes]:
        """The notes of some nodes."""
        return (self.nodes[i].notes for i in rows.tolist())

    def tree_notes(self) -> Iterator[Notes]:
        """The notes of every tree."""
        return (t.notes for t in self.trees)

    def events(self) -> EventColumns:
        """All events."""
        pairs = [(i, e) for i, t in enumerate(self.trees) for e in t.events]
        return EventColumns(
            np.array([i for i, _ in pairs], np.int64),
            np.array([-1 if e.node is None else e.node for _, e in pairs], np.int64),
            [e.kind for _, e in pairs], [e.why for _, e in pairs], np.array([e.at for _, e in pairs], np.float64),
            [e.numbers for _, e in pairs],
        )  # fmt: skip


def table(trees: Iterable[Tree]) -> Table:
    """The columnar view of some trees as they stand now; later growth is not seen."""
    all_trees = tuple(trees)
    nodes: list[Node] = []
    tree_of: list[int] = []
    parent: list[int] = []
    for t, tree in enumerate(all_trees):
        row: dict[int, int] = {}
        for node in tree.walk():
            row[node.id] = len(nodes)
            parent.append(-1 if node.parent is None else row[node.parent])
            tree_of.append(t)
            nodes.append(node)
    return Table(all_trees, tuple(nodes), np.asarray(tree_of, np.int64), np.asarray(parent, np.int64))
