"""One tree as arrays, whatever its size: rows of its nodes depth first, and a number per node for its colour."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rolltree.tree.archive import Archive
from rolltree.tree.parquet import readable
from rolltree.tree.shape import Ints, Shape, parent_rows
from rolltree.view.colours import Colouring, author
from rolltree.view.links import ViewError
from rolltree.view.sums import Floats, aligned, segment_mean, segment_sum


class Outline(Shape):
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
    if colouring == "mismatch":
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
    versions, _ = archive.ragged("version")
    return int(versions.max()) if len(versions) else 0


def outline(archive: Archive, tree: str) -> Outline:
    """A tree of an archive by its id."""
    for index, (_, id) in enumerate(archive.trees):
        if id == tree:
            return Outline(archive, index)
    raise ViewError(f"{archive.folder.name} has no tree {tree!r}; choose one from the list of its prompts")
