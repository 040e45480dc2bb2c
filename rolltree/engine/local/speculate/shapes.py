"""Which guesses become nodes: chains, fixed trees, delayed trees, and a spine with branches.

A shape is a generator: it yields the nodes it wants guesses for, is sent those guesses, and adds nodes. So the rows of
a batch grow side by side and a drafter with a forward pass of its own is asked once per level.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from rolltree.engine.local.speculate.drafter import Lead
from rolltree.engine.local.speculate.tree import DraftTree, Guess
from rolltree.engine.protocol import EngineError

Growth = Generator[list[tuple[int, int]], list[list[Guess]], None]
"""Yields (node, guesses wanted), is sent the guesses of each."""

MOST = 128
"""Nodes of a tree at most."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a tree may take of its row, and how a lead is found."""

    depth: int
    nodes: int
    lead: Callable[[int], Lead | None]


class GuessShape(Protocol):
    """Grows trees."""

    @property
    def nodes(self) -> int:
        """Most guesses of a tree."""
        ...

    def grow(self, tree: DraftTree, space: Space) -> Growth:
        """Add nodes to a tree that has none."""
        ...


@dataclass(frozen=True, slots=True)
class GuessWidths:
    """So many children below each node of a depth: (1, 1, 1) a chain, (3, 2) a tree, (1, 1, 3, 1) one that is delayed.

    A delayed tree (trunk L1, then K paths of L2; "Dynamic Delayed Tree Expansion", arXiv 2602.16994) branches where the
    drafter begins to be wrong. There the K paths are drawn independently; here they begin with different tokens, since
    a guess made twice is never right twice.
    """

    widths: tuple[int, ...]
    least: float = 0.0
    """A path goes on while its estimated probability is at least this."""

    @property
    def nodes(self) -> int:
        """See `GuessShape`."""
        total, level = 0, 1
        for width in self.widths:
            level *= width
            total += level
        return total

    def grow(self, tree: DraftTree, space: Space) -> Growth:
        """See `GuessShape`."""
        frontier = [0]
        for width in self.widths[: space.depth]:
            offers = yield [(node, width) for node in frontier]
            new = list[int]()
            for node, guesses in zip(frontier, offers, strict=True):
                for guess in guesses[:width]:
                    if len(tree) <= space.nodes and tree.chances[node] * guess.chance >= self.least:
                        new.append(tree.add(node, guess))
            if not new:
                return
            frontier = new


@dataclass(frozen=True, slots=True)
class Spine:
    """A copied continuation as a chain, and branches of weak guesses along it (Goose, arXiv 2604.02047).

    The surer the copy, the more of the budget it gets; a copy without doubt is a bare chain. Of what is left for
    branches, half goes to the chain's nodes in proportion to 1 / depth and half to the root; branches then grow while
    the budget lasts. How branches share the budget below their first token is our reading of the paper.
    """

    budget: int = 60
    least: float = 0.01
    """Least score of a branch."""

    @property
    def nodes(self) -> int:
        """See `GuessShape`."""
        return min(MOST, self.budget + 40)

    def grow(self, tree: DraftTree, space: Space) -> Growth:
        """See `GuessShape`."""
        lead = space.lead(min(space.depth, 100))
        sure = 0.0 if lead is None else lead.confidence
        budget = min(space.nodes, MOST, int(self.budget + 40 * sure))
        node, spine = 0, [0]
        if lead is not None:
            base = 0.15 if lead.kept < 0.2 else 0.3 if lead.kept < 0.4 else 0.5
            length = min(len(lead.tokens), space.depth, int(budget * (base + sure * (1 - base))))
            for token in lead.tokens[:length]:
                node = tree.add(node, Guess(token, 1.0))
                spine.append(node)
        left = budget - (len(spine) - 1)
        if left < 1 or sure >= 1:
            return
        asked = [(node, min(10, n)) for node, n in zip(spine, _shares(left, len(spine)), strict=True) if n]
        asked = [(node, n) for node, n in asked if tree.depths[node] < space.depth]
        offers = yield asked
        frontier = list[int]()
        for (node, _), guesses in zip(asked, offers, strict=True):
            after = tree.tokens[node + 1] if node + 1 < len(spine) else -1
            for guess in guesses:
                if guess.token != after and guess.chance >= self.least and len(tree) <= budget:
                    frontier.append(tree.add(node, guess))
        while frontier and len(tree) <= budget:
            left = budget + 1 - len(tree)
            asked = [(node, self._width(tree, node, left)) for node in frontier if _may_grow(tree, node, space)]
            offers = yield asked
            frontier = []
            for (node, _), guesses in zip(asked, offers, strict=True):
                for guess in guesses:
                    if guess.chance >= self.least and len(tree) <= budget:
                        frontier.append(tree.add(node, guess))

    def _width(self, tree: DraftTree, node: int, left: int) -> int:
        wanted = max(1, math.ceil(left * tree.chances[node]))
        return min(wanted, max(1, 10 // tree.depths[node]))


def _shares(left: int, spine: int) -> list[int]:
    """How many branches the root and each node of the spine get."""
    if spine == 1:
        return [left]
    harmonic = sum(1 / i for i in range(1, spine))
    return [left - left // 2, *(int(left // 2 / i / harmonic) for i in range(1, spine))]


def _may_grow(tree: DraftTree, node: int, space: Space) -> bool:
    return tree.depths[node] < min(6, space.depth)


def shape_of(text: str) -> GuessShape | None:
    """Read `6` (a chain), `3x2x1` (a tree), `2+3x4` (trunk of 2, then 3 paths of 4), `spine`; None for others."""
    if text == "spine":
        return Spine()
    if re.fullmatch(r"\d+", text):
        return _checked(text, GuessWidths((1,) * min(int(text), MOST + 1), 0.3))
    if re.fullmatch(r"\d+(x\d+)+", text):
        return _checked(text, GuessWidths(tuple(map(int, text.split("x"))), 0.01))
    if found := re.fullmatch(r"(\d+)\+(\d+)x(\d+)", text):
        trunk, paths, length = map(int, found.groups())
        return _checked(text, GuessWidths((1,) * min(trunk, MOST) + (paths,) + (1,) * (min(length, MOST) - 1), 0.01))
    return None


def _checked(text: str, shape: GuessWidths) -> GuessWidths:
    if min(shape.widths, default=0) < 1 or not 1 <= shape.nodes <= MOST:
        raise EngineError(f"speculate asks for the shape {text!r}; a tree has from 1 to {MOST} guesses, so name fewer")
    return shape
