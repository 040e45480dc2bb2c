"""One tree as arrays, whatever its size: rows of its nodes depth first, and a number per node for its colour."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.node import SOLVED
from rolltree.tree.shape import Ints, Shape, parent_rows
from rolltree.tree.store.archive import Archive
from rolltree.tree.store.parquet import readable
from rolltree.view.colours import Colouring, Scale, author, scale
from rolltree.view.links import ViewError
from rolltree.view.quantities import node_means, recorded, token_values
from rolltree.view.sums import Floats


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

    def values(self, colouring: Colouring) -> Floats:
        """A number per node for its colour; NaN where nothing was recorded."""
        if colouring == "reward":
            return self.rewards
        if colouring == "value":
            return self.archive.scores("value")[self.lo : self.hi]
        if colouring == "author":
            roles, actors = self.archive.words("role"), self.archive.words("actor")
            pairs = zip(roles[0][self.lo : self.hi], actors[0][self.lo : self.hi], strict=True)
            return np.array([author(roles[1][r], actors[1][a] if a >= 0 else "") for r, a in pairs], np.float64)
        return node_means(self.archive, colouring, self.lo, self.hi)

    def scale(self, colouring: Colouring) -> Scale:
        """The one scale of the tree: the same colour is the same number on every rectangle and every token."""
        if colouring not in self._scales:
            node = colouring in ("reward", "value", "author")
            values = self.values(colouring) if node else token_values(self.archive, colouring, self.lo, self.hi)[0]
            self._scales[colouring] = scale(colouring, values)
        return self._scales[colouring]

    @cached_property
    def _scales(self) -> dict[Colouring, Scale]:
        return {}

    @cached_property
    def colourings(self) -> tuple[Colouring, ...]:
        """The colourings that something in the tree has data for."""
        known: list[Colouring] = ["author"]
        if np.isfinite(self.rewards).any():
            known.append("reward")
        if np.isfinite(self.values("value")).any():
            known.append("value")
        more: tuple[Colouring, ...] = ("entropy", "mismatch", "advantage", "staleness")
        known.extend(c for c in more if recorded(self.archive, c, self.lo, self.hi))
        return tuple(known)

    @cached_property
    def solved(self) -> tuple[int, int]:
        """How many of the tree's judged leaves are right, and how many there are."""
        reward, said = (self.archive.scores(n)[self.lo : self.hi] for n in ("reward", "solved"))
        judged = self.is_leaf & np.isfinite(reward)
        right = np.where(np.isfinite(said), said, reward) >= SOLVED
        return int((judged & right).sum()), int(judged.sum())


def outline(archive: Archive, tree: str) -> Outline:
    """A tree of an archive by its id."""
    for index, (_, id) in enumerate(archive.trees):
        if id == tree:
            return Outline(archive, index)
    raise ViewError(f"{archive.folder.name} has no tree {tree!r}; choose one from the list of its prompts")
