"""One tree with a number per node for its colour."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rolltree.analysis.tree_rows import TreeRows, place_of
from rolltree.tree.store.archive import Archive
from rolltree.view.colours import Colouring, Scale, author, scale
from rolltree.view.quantities import Floats, node_means, recorded, token_values


class Outline(TreeRows):
    """The rows of one tree with their colours."""

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


def outline(archive: Archive, tree: str) -> Outline:
    """A tree of an archive by its id."""
    return Outline(archive, place_of(archive, tree))
