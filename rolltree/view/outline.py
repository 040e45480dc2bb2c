"""One tree as arrays, whatever its size: rows of its nodes depth first, and a number per node for its colour."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.archive import Archive
from rolltree.tree.shape import Ints
from rolltree.view.colours import Colouring, author
from rolltree.view.links import ViewError
from rolltree.view.sums import Floats, aligned, segment_mean, segment_sum


@dataclass(frozen=True, eq=False)
class Outline:
    """The rows of one tree of an archive; rows count from the tree's root."""

    archive: Archive
    index: int
    """Place of the tree among the archive's."""

    @property
    def id(self) -> str:
        """The tree's id."""
        return self.archive.trees[self.index][1]

    @property
    def lo(self) -> int:
        """Row of the root in the archive."""
        return int(self.archive.tree_start[self.index])

    @property
    def hi(self) -> int:
        """One past the tree's last row in the archive."""
        return int(self.archive.tree_start[self.index + 1])

    def __len__(self) -> int:
        return self.hi - self.lo

    @cached_property
    def ids(self) -> Ints:
        """Node id per row."""
        return self.archive.numbers("id")[self.lo : self.hi].astype(np.int64)

    @cached_property
    def parent(self) -> Ints:
        """Row of the parent, -1 at the root."""
        above = self.archive.parent[self.lo : self.hi]
        return np.where(above < 0, -1, above - self.lo)

    @cached_property
    def end(self) -> Ints:
        """Row after each node's last descendant."""
        return self.archive.end[self.lo : self.hi] - self.lo

    @cached_property
    def depth(self) -> Ints:
        """Nodes above each node."""
        return self.archive.depth[self.lo : self.hi]

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Nodes without children."""
        return self.archive.is_leaf[self.lo : self.hi]

    @cached_property
    def leaves_before(self) -> Ints:
        """Leaves before each row, and the number of all at the end."""
        return np.concatenate([[0], np.cumsum(self.is_leaf)])

    @cached_property
    def leaves(self) -> Ints:
        """Leaves at or below each node."""
        return self.leaves_before[self.end] - self.leaves_before[:-1]

    @cached_property
    def length(self) -> Ints:
        """Actions per node."""
        return self.archive.numbers("length")[self.lo : self.hi].astype(np.int64)

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

    def children(self, row: int) -> list[int]:
        """Rows of a node's children in order."""
        out: list[int] = []
        child, end = row + 1, int(self.end[row])
        while child < end:
            out.append(child)
            child = int(self.end[child])
        return out

    def path(self, row: int) -> list[int]:
        """Rows from the root to this one."""
        out: list[int] = []
        while row >= 0:
            out.append(row)
            row = int(self.parent[row])
        return out[::-1]

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

    def values(self, colouring: Colouring) -> Floats:
        """A number per node for its colour; NaN where nothing was recorded."""
        if colouring == "reward":
            return self.rewards
        if colouring == "author":
            roles, actors = self.archive.words("role"), self.archive.words("actor")
            pairs = zip(roles[0][self.lo : self.hi], actors[0][self.lo : self.hi], strict=True)
            return np.array([author(roles[1][r], actors[1][a] if a >= 0 else "") for r, a in pairs], np.float64)
        return node_means(self.archive, colouring, self.lo, self.hi)


def node_means(archive: Archive, colouring: Colouring, lo: int, hi: int) -> Floats:
    """Mean of a per-action quantity over each node's actions."""
    if colouring == "entropy":
        (entropy,), at = aligned(archive, ("entropy",), lo, hi)
        return segment_mean(entropy, at)
    if colouring == "gap":
        (sampling_logprob, logp), at = aligned(archive, ("sampling_logprob", "logp"), lo, hi)
        return segment_mean(sampling_logprob - logp, at)
    if colouring == "advantage":
        (gain, loss, weight), at = aligned(archive, ("gain", "loss", "weight"), lo, hi)
        with np.errstate(invalid="ignore", divide="ignore"):
            return segment_sum(gain + loss, at) / segment_sum(weight, at)
    (version,), at = aligned(archive, ("version",), lo, hi)
    return newest(archive) - segment_mean(np.where(version < 0, np.nan, version), at)


def newest(archive: Archive) -> int:
    """The newest weight version that wrote anything in the forest."""
    versions, _ = archive.flat("version")
    return int(versions.max()) if len(versions) else 0


def outline(archive: Archive, tree: str) -> Outline:
    """A tree of an archive by its id."""
    for index, (_, id) in enumerate(archive.trees):
        if id == tree:
            return Outline(archive, index)
    raise ViewError(f"{archive.folder.name} has no tree {tree!r}; choose one from the list of its prompts")
