"""Opening times of the viewer in a real Chromium, as ratios of pages that are opened in turn in one run.

    python benchmarks/viewing.py [--nodes 200000] [--repeats 5] [--json FILE]

A page's time runs from the navigation to the frame after its canvas or table was drawn. Large trees and steps are set
against few nodes, and against a bare page of the same file: pyarrow reads its columns, a script draws a rectangle per
node or a row per tree, and nothing can be pointed at, opened or searched. Each round opens forests of its own, so that
nothing is kept from one to the next; a first round is thrown away. Needs rolltree[view], Playwright and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bare_pages import DRAWN, serve_bare
from machine import save
from playwright.sync_api import sync_playwright

from rolltree.tree import Forest, Tree
from rolltree.tree.store.parquet import save as save_forest

FEW = 20
"""Nodes of a small tree, and of a small step."""
SMALL = 50
"""Nodes of each tree of a step."""
CLOCK = """() => {
  const look = () => {
    if (window.drawnAt || !document.querySelector('SELECTOR')) return;
    window.drawnAt = -1;
    requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnAt = performance.now(); }));
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
}"""
LOGP = np.array([-1.0], np.float32)


@dataclass(frozen=True)
class Row:
    """One page: seconds, and its ratio to the page of few nodes and to the bare page of the same file."""

    page: str
    nodes: int
    seconds: tuple[float, float, float]
    over_few: tuple[float, float, float] | None
    over_bare: tuple[float, float, float] | None


def deep(nodes: int) -> Forest:
    """The deepest tree there is for its leaves: half of its nodes on one path, a leaf beside each."""
    tree = Tree("t", [0])
    above = tree.root
    for i in range(nodes // 2):
        tree.extend(above, [i % 64], logp=LOGP, status="done", scores={"reward": float(i % 2)})
        above = tree.extend(above, [i % 64], logp=LOGP, status="done")
    return Forest([tree])


def wide(nodes: int) -> Forest:
    """A tree whose nodes fork into eight, level by level."""
    tree = Tree("t", [0])
    waiting = deque([tree.root])
    while len(tree.nodes) < nodes:
        above = waiting.popleft()
        waiting.extend(tree.extend(above, [i], logp=LOGP, status="done") for i in range(8))
    for i, leaf in enumerate(waiting):
        leaf.scores["reward"] = float(i % 3 == 0)
    return Forest([tree])


def step(trees: int) -> Forest:
    """So many small trees."""
    made: list[Tree] = []
    for i in range(trees):
        tree = Tree(f"t{i}", [i % 64])
        for j in range(SMALL // 2):
            first = tree.extend(tree.root, [j], logp=LOGP, status="done")
            tree.extend(first, [i % 64], logp=LOGP, status="done", scores={"reward": float((i * j) % 2)})
        made.append(tree)
    return Forest(made)


PAGES: dict[str, tuple[Callable[[int], Forest], str, str]] = {
    "deep tree": (deep, "/tree?run={run}&tree=t", ".icicle[data-drawn]"),
    "wide tree": (wide, "/tree?run={run}&tree=t", ".icicle[data-drawn]"),
    "step": (lambda n: step(max(1, n // SMALL)), "/step?run={run}", "a.row-link"),
}
"""Name → forest of so many nodes, address, and what stands there once it is drawn."""


@contextmanager
def viewer(folder: Path) -> Generator[str]:
    """The address of a viewer on a folder."""
    command = [sys.executable, "-m", "rolltree", "view", str(folder), "--port", "0"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().rpartition(" at ")[2].strip().rstrip("/")
    finally:
        process.terminate()
        process.wait()


def opened(context: Any, address: str, selector: str) -> float:
    """Seconds from the navigation to the frame after something was drawn, in a new tab of a browser in use."""
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.add_init_script(f"({CLOCK.replace('SELECTOR', selector)})()")
    while True:
        try:
            page.goto(address)
            break
        except Exception as error:
            if "ERR_CONNECTION_REFUSED" not in str(error):  # the viewer is still starting
                raise
    page.wait_for_function("window.drawnAt > 0")
    seconds = page.evaluate("window.drawnAt") / 1000
    page.close()
    return seconds


def measure(nodes: int, repeats: int, folder: Path) -> list[Row]:
    """Open every page once a round, the small, the large and the bare one of each kind in turn."""
    for name, (make, _, _) in PAGES.items():
        for size, many in (("few", FEW), ("many", nodes)):
            first = save_forest(make(many), folder / f"{size}-{name.replace(' ', '-')}-0")
            for i in range(1, repeats + 1):
                shutil.copytree(first, first.with_name(first.name[:-1] + str(i)))
    program = shutil.which("chromium") or shutil.which("google-chrome")
    laps: dict[str, list[float]] = {}
    with sync_playwright() as playwright, viewer(folder) as address, serve_bare(folder) as bare:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        for i in range(repeats + 1):
            for name, (_, place, selector) in PAGES.items():
                kind = name.replace(" ", "-")
                for key, at, drawn in (
                    ("few", address + place.format(run=f"few-{kind}-{i}"), selector),
                    ("many", address + place.format(run=f"many-{kind}-{i}"), selector),
                    ("bare", f"{bare}/{name.split()[-1]}/many-{kind}-{i}", DRAWN),
                ):
                    seconds = opened(context, at, drawn)
                    if i:
                        laps.setdefault(f"{name} {key}", []).append(seconds)
        browser.close()
    rows: list[Row] = []
    for name in PAGES:
        few, many, plain = (laps[f"{name} {key}"] for key in ("few", "many", "bare"))
        rows.append(Row(f"{name}, few nodes", FEW, spread(few), None, None))
        rows.append(Row(name, nodes, spread(many), ratio(many, few), ratio(many, plain)))
        rows.append(Row(f"{name}, bare", nodes, spread(plain), None, None))
    return rows


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Pairs of one round each."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Minimum, median, maximum."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return round(low, 3), round(middle, 3), round(high, 3)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(options.nodes, options.repeats, Path(scratch))
    print(f"{'page':22} {'nodes':>8} {'seconds':>20} {'over few nodes':>20} {'over bare':>20}   (min / median / max)")
    for row in rows:
        told = [
            "" if v is None else " / ".join(f"{x:.2f}" for x in v) for v in (row.seconds, row.over_few, row.over_bare)
        ]
        print(f"{row.page:22} {row.nodes:>8,} {told[0]:>20} {told[1]:>20} {told[2]:>20}")
    save(options.json, rows)


if __name__ == "__main__":
    main()
