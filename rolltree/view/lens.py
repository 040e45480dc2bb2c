"""The path to a node once per credit, as strips of tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rolltree.analysis.lens import Lens
from rolltree.analysis.text import Pieces
from rolltree.view.colours import scale
from rolltree.view.model import path_strip
from rolltree.view.outline import Outline
from rolltree.view.strip import SHOWN as LONGEST
from rolltree.view.strip import Strip


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
