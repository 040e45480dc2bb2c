"""How long the viewer takes for one deep tree, from the files to what is drawn, at sizes ten times apart.

    python benchmarks/viewing.py 20000 200000

A comb (half of its nodes on one path, a leaf beside each) is the deepest tree there is for its leaves. What is drawn is
the tree from its root with the deepest leaf chosen, and the tokens of the path to it. Ratios are against reading the
tree's columns alone, which no drawing can do without; seconds depend on the machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rolltree.tree import Forest, Tree
from rolltree.tree.archive import open_forest
from rolltree.tree.parquet import save
from rolltree.view.icicle import icicle
from rolltree.view.model import excerpts, path_strip
from rolltree.view.outline import Outline
from rolltree.view.prompts import by_spread
from rolltree.view.rows import events_of
from rolltree.view.text import Pieces
from rolltree.view.words import event_text

COLUMNS = ("id", "parent", "length")


def comb(nodes: int) -> Tree:
    """A tree of about so many nodes, half of them on one path."""
    tree = Tree("comb", [0])
    above = tree.root
    logp = np.array([-1.0], np.float32)
    for i in range(nodes // 2):
        deeper = tree.extend(above, [i % 64], logp=logp, status="done")
        tree.extend(above, [i % 64], logp=logp, status="done", scores={"reward": float(i % 2)})
        above = deeper
    return tree


def draw(folder: Path, clock: Callable[[str], None]) -> int:
    """What the page of a tree does, step by step; the number of rectangles."""
    archive = open_forest(folder)
    for name in COLUMNS:
        archive.numbers(name, missing=-1)
    archive.ragged("actions")
    clock("columns")
    by_spread(archive)
    tree = Outline(archive, 0)
    deepest = int(np.argmax(tree.depth))
    clock("outline")
    known = tree.colourings
    clock("colourings")
    drawn = icicle(tree, known[-1], selected=deepest, excerpt=excerpts(tree, Pieces(None)))
    clock("icicle")
    path_strip(tree, tree.path(deepest), Pieces(None), "reward")
    clock("path")
    for event in events_of(archive, 0):
        event_text(event)
    clock("events")
    return len(drawn.rects)


def main(sizes: list[int]) -> None:
    """Print a table."""
    for nodes in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            folder = save(Forest([comb(nodes)]), Path(scratch) / "forest")
            laps: dict[str, float] = {}
            before = time.perf_counter()

            def clock(name: str, laps: dict[str, float] = laps) -> None:
                nonlocal before
                now = time.perf_counter()
                laps[name], before = now - before, now

            rects = draw(folder, clock)
            whole = sum(laps.values())
            parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in laps.items())
            ratio = whole / laps["columns"]
            print(f"{nodes:,} nodes: {whole:.2f} s for {rects} rectangles, {ratio:.0f} times the columns alone")
            print(f"  {parts}")


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [20_000, 200_000])
