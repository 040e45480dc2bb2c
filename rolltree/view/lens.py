"""Several credits on a source's trees, with the words of the tokens whose sign flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from rolltree.analysis.lens import Averaging, Lens, lens
from rolltree.tree import Tree
from rolltree.view.colours import scale
from rolltree.view.model import path_strip
from rolltree.view.outline import Outline
from rolltree.view.source import RunSource
from rolltree.view.strip import SHOWN as LONGEST
from rolltree.view.strip import Strip
from rolltree.view.text import Pieces

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


def lens_strips(
    made: Lens, tree: Outline, row: int, pieces: Pieces
) -> tuple[list[tuple[str, Strip]], dict[int, list[bool]]]:
    """The path to a node once per credit, on one scale, and by node which shown tokens flip; of a lens on one tree."""
    plain, _ = path_strip(tree, tree.path(row), pieces, "advantage")
    used = scale("advantage", made.advantage[np.isfinite(made.advantage)])
    row_of = {node.id: i for i, node in enumerate(made.table.nodes)}
    at: dict[int, Any] = {}
    places = [made.of_node(row_of[run.node]) for run in plain.runs]
    total, seen = sum(here.stop - here.start for here in places), 0
    for run, here in zip(plain.runs, places, strict=True):
        index = np.arange(seen, seen + here.stop - here.start)
        shown = (index < LONGEST // 2) | (index >= total - LONGEST // 2) | (total <= LONGEST)  # as `strip` keeps them
        at[run.node], seen = here.start + np.flatnonzero(shown), seen + len(index)
    out: list[tuple[str, Strip]] = []
    for i, name in enumerate(made.names):
        facts = {other: made.advantage[j] for j, other in enumerate(made.names)}
        runs = tuple(
            replace(
                run, shades=used.index(made.advantage[i][at[run.node]]).tolist(),
                facts={n: [None if np.isnan(v) else round(float(v), 5) for v in a[at[run.node]]]
                       for n, a in facts.items()},
            ) for run in plain.runs
        )  # fmt: skip
        out.append((name, replace(plain, runs=runs, scale=used, note="")))
    return out, {node: made.flips[keep].tolist() for node, keep in at.items()}
