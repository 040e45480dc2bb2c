"""One forest under several credits: what each says of every token, and where two of them disagree about its sign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from rolltree.analysis.prefix import AnalysisError
from rolltree.analysis.source import RunSource
from rolltree.analysis.text import Pieces
from rolltree.credit.advantage import Credit
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.needs import check_needs
from rolltree.tree import Tree
from rolltree.tree.shape import Bools, Floats
from rolltree.tree.table import Table, table

SMALL = 1e-9
"""Advantages that are no further from zero than this push a token neither up nor down."""


@dataclass(frozen=True)
class Averaging:
    """How leaves are averaged before they are folded; the same for all credits that are compared."""

    over: Literal["token", "sequence", "group", "fixed"] = "sequence"
    fixed_length: int | None = None
    multiplicity: Literal["per_leaf", "once", "sqrt"] = "per_leaf"


@dataclass(frozen=True, eq=False)
class Lens:
    """The advantage of every action under each credit: (gain + loss) / weight; NaN where a credit teaches nothing."""

    names: tuple[str, ...]
    table: Table
    advantage: Floats
    """Credits × actions."""

    @cached_property
    def sign(self) -> Floats:
        """−1, 0 or 1 per credit and action; NaN where it teaches nothing."""
        return np.where(np.abs(self.advantage) <= SMALL, np.where(np.isnan(self.advantage), np.nan, 0.0),
                        np.sign(self.advantage))  # fmt: skip

    @cached_property
    def flips(self) -> Bools:
        """Actions that one credit makes likelier and another less likely."""
        return np.any(self.sign > 0, axis=0) & np.any(self.sign < 0, axis=0)

    @cached_property
    def taught(self) -> Bools:
        """Actions that some credit teaches."""
        return np.isfinite(self.advantage).max(axis=0)

    def flipped(self, one: int, other: int) -> int:
        """How many actions change their sign between two credits."""
        return int((self.sign[one] * self.sign[other] < 0).sum())

    def alike(self, one: int, other: int) -> float:
        """Correlation (Pearson) of two credits over the actions both teach; NaN where one of them is constant."""
        both = np.isfinite(self.advantage[[one, other]]).all(0)
        a, b = self.advantage[one][both], self.advantage[other][both]
        if len(a) < 2 or np.ptp(a) <= SMALL or np.ptp(b) <= SMALL:
            return float("nan")
        return float(np.corrcoef(a, b)[0, 1])

    def of_node(self, row: int) -> slice:
        """Where the actions of a node stand."""
        start = int(self.table.start[row])
        return slice(start, start + int(self.table.length[row]))

    def rows(self) -> list[int]:
        """Rows of nodes with a flip, those on which the credits differ most first."""
        flips = np.flatnonzero(self.flips)
        if not len(flips):
            return []
        found = self.advantage[:, flips]
        apart = np.nanmax(found, axis=0) - np.nanmin(found, axis=0)
        row = np.searchsorted(self.table.start + self.table.length, flips, side="right")
        most = np.zeros(len(self.table.nodes))
        np.maximum.at(most, row, apart)
        rows = np.unique(row)
        return rows[np.argsort(-most[rows], kind="stable")].tolist()


def lens(trees: Iterable[Tree], credits: Mapping[str, Credit], how: Averaging | None = None) -> Lens:
    """Compute several credits on the same trees, which stay as they are."""
    if len(credits) < 2:
        raise AnalysisError("credits are compared with one another; name at least two")
    view = table(trees)
    rows = [advantages(view, credit, how) for credit in credits.values()]
    return Lens(tuple(credits), view, np.stack(rows))


def advantages(view: Table, credit: Credit, how: Averaging | None = None) -> Floats:
    """What a credit says of every action: (gain + loss) / weight; NaN where it teaches nothing."""
    how = how or Averaging()
    check_needs(view, credit)
    advantage = credit(view)
    weights = leaf_weights(view, how.over, counted=advantage.counted, fixed_length=how.fixed_length)
    folded = fold(view, advantage, weights, how.multiplicity)
    out = np.full(view.actions, np.nan)
    used = folded.weight > 0
    out[used] = (folded.gain[used] + folded.loss[used]) / folded.weight[used]
    return out


# Several credits on a source's trees, with the words of the tokens whose sign flips.

SHOWN = 48
"""Characters of a node's text in a list."""


@dataclass(frozen=True)
class CreditPair:
    """Two credits held against each other."""

    one: str
    other: str
    alike: float
    """Correlation over the tokens both teach."""
    flipped: int
    share: float
    """Flipped tokens among those some credit teaches."""


@dataclass(frozen=True)
class FlippedNode:
    """A node with tokens whose sign flips, and what each credit says of them on average."""

    tree: str
    node: int
    text: str
    flipped: int
    advantage: tuple[float, ...]


def open_lens(
    source: RunSource, step: int | None, names: Sequence[str], *, tree: str = "", how: Averaging | None = None
) -> Lens:
    """The credits, by name with their default knobs, on the trees of a saved step (or on one of them).

    Those of one's own were given with the source.
    """
    archive = source.archive(step)
    trees: list[Tree] = [archive.tree(tree)] if tree else list(archive)
    return lens(trees, {name: source.names.credit(name) for name in names}, how)


def pairs(made: Lens) -> list[CreditPair]:
    """Every two of the credits."""
    taught = max(1, int(made.taught.sum()))
    return [
        CreditPair(made.names[a], made.names[b], made.alike(a, b), n := made.flipped(a, b), n / taught)
        for a, b in combinations(range(len(made.names)), 2)
    ]


def flipped_nodes(made: Lens, pieces: Pieces, most: int) -> list[FlippedNode]:
    """The nodes on which the credits differ most in sign."""
    out: list[FlippedNode] = []
    for row in made.rows()[:most]:
        node, at = made.table.nodes[row], made.of_node(row)
        flips = made.flips[at]
        says = np.nanmean(made.advantage[:, at][:, flips], axis=1)
        tree = made.table.trees[int(made.table.tree[row])].id
        out.append(FlippedNode(tree, node.id, pieces.text(node.actions)[:SHOWN], int(flips.sum()), tuple(says)))
    return out
