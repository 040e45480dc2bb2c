"""One tree of an archive as arrays, whatever its size: rows of its nodes depth first, and what stands at each."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rolltree.analysis.source import ViewError
from rolltree.tree.node import SOLVED
from rolltree.tree.shape import Floats, Ints, Shape, parent_rows
from rolltree.tree.store.archive import Archive
from rolltree.tree.store.parquet import readable


class TreeRows(Shape):
    """The rows of one tree of an archive; rows count from the tree's root."""

    def __init__(self, archive: Archive, index: int) -> None:
        self.archive = archive
        self.index = index
        """Place of the tree among the archive's."""
        self.lo = int(archive.tree_start[index])
        """Row of the root in the archive."""
        self.hi = int(archive.tree_start[index + 1])
        """One past the tree's last row in the archive."""
        whole = np.zeros(self.hi - self.lo, np.int64)
        above = archive.numbers("parent", missing=-1)[self.lo : self.hi]
        with readable(archive.folder):
            super().__init__(whole, parent_rows(whole, self.ids, above))

    @property
    def id(self) -> str:
        """The tree's id."""
        return self.archive.ids[self.index]

    @cached_property
    def ids(self) -> Ints:
        """Node id per row."""
        return self.archive.numbers("id")[self.lo : self.hi].astype(np.int64)

    @cached_property
    def length(self) -> Ints:
        """Actions per node."""
        return self.archive.numbers("length")[self.lo : self.hi].astype(np.int64)

    @cached_property
    def latents(self) -> bool:
        """Whether its archive holds actions that are no tokens."""
        shapes = self.archive.column("shape")
        return shapes.null_count < len(shapes)

    @cached_property
    def forced(self) -> NDArray[np.bool_]:
        """Nodes whose actions a method chose instead of sampling them."""
        return self.archive.numbers("forced", missing=False)[self.lo : self.hi].astype(np.bool_)

    def word(self, name: str, row: int) -> str:
        """A column of words at a row; "" where there is none."""
        if name not in self._words:
            codes, words = self.archive.words(name)
            self._words[name] = (codes[self.lo : self.hi], words)
        codes, words = self._words[name]
        code = int(codes[row])
        return "" if code < 0 else words[code]

    @cached_property
    def _words(self) -> dict[str, tuple[Ints, list[str]]]:
        return {}

    def row(self, node: int) -> int:
        """Row of a node by its id."""
        found = np.flatnonzero(self.ids == node)
        if not len(found):
            raise ViewError(f"tree {self.id!r} has no node {node}; its ids run from 0 to {int(self.ids.max())}")
        return int(found[0])

    @cached_property
    def rewards(self) -> Floats:
        """Mean outcome of the judged leaves at or below each node; NaN where there are none."""
        own = self.archive.scores("reward")[self.lo : self.hi]
        counted = self.is_leaf & np.isfinite(own)
        total = np.concatenate([[0.0], np.cumsum(np.where(counted, own, 0.0))])
        count = np.concatenate([[0], np.cumsum(counted)])
        rows = np.arange(len(self))
        with np.errstate(invalid="ignore", divide="ignore"):
            return (total[self.end] - total[rows]) / (count[self.end] - count[rows])

    @cached_property
    def solved(self) -> tuple[int, int]:
        """How many of the tree's judged leaves are right, and how many there are."""
        reward, said = (self.archive.scores(n)[self.lo : self.hi] for n in ("reward", "solved"))
        judged = self.is_leaf & np.isfinite(reward)
        right = np.where(np.isfinite(said), said, reward) >= SOLVED
        return int((judged & right).sum()), int(judged.sum())


def tree_rows(archive: Archive, tree: str) -> TreeRows:
    """A tree of an archive by its id."""
    return TreeRows(archive, place_of(archive, tree))


def place_of(archive: Archive, tree: str) -> int:
    """Place of a tree among the archive's, by its id."""
    for index, (_, id) in enumerate(archive.trees):
        if id == tree:
            return index
    raise ViewError(f"{archive.folder.name} has no tree {tree!r}; choose one from the list of its prompts")
