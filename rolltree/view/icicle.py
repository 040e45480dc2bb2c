"""A tree as an icicle: a rectangle per node, as wide as the leaves below it, coloured by what is asked for.

A big tree is folded, never cut: runs of nodes without a fork become one rectangle, and the narrowest branches of a node
become one "… more" rectangle that opens when it is chosen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rolltree.view.colours import Colouring, Scale, scale
from rolltree.view.outline import Outline
from rolltree.view.sums import Floats

LIMIT = 700
"""Most rectangles drawn one by one."""
DEEP = 30
"""Levels beyond which runs without a fork are joined even in small trees."""


@dataclass(frozen=True)
class Rect:
    """One rectangle."""

    key: str
    """`n12` = node 12 (and the run of nodes that ends there), `f12` = the folded branches of node 12."""
    above: str
    node: int
    """The node it selects; for folded branches, the node they grow from."""
    label: str
    lines: tuple[str, ...]
    """What it says of itself, line by line; plain text."""
    leaves: int
    value: float
    shade: int
    """Index into the scale's palette; -1 = no value."""


@dataclass(frozen=True)
class Icicle:
    """All rectangles of a tree, or of the part below a node."""

    rects: tuple[Rect, ...]
    scale: Scale
    nodes: int
    leaves: int
    folded: int
    """Nodes inside folded rectangles."""
    _holder: dict[int, str]

    def holder(self, node: int) -> str:
        """The rectangle that shows a node; "" where it is folded away or not below the drawn root."""
        return self._holder.get(node, "")


def icicle(
    tree: Outline, colouring: Colouring, *, root: int = 0, selected: int | None = None, limit: int = LIMIT,
    excerpt: Callable[[int], str] = lambda row: "",
) -> Icicle:  # fmt: skip
    """Draw a tree from a row on; `excerpt` gives a few words of a row's text. The selected row is always drawn."""
    values = tree.values(colouring)
    join = int(tree.end[root]) - root > limit or int(tree.depth[root : tree.end[root]].max() - tree.depth[root]) > DEEP
    wanted = set(tree.path(selected)) if selected is not None else set[int]()
    rects: list[Rect] = []
    holder: dict[int, str] = {}
    folded = 0
    used = scale(colouring, values)
    waiting: list[tuple[bool, int, int, str]] = [(False, 0, root, "")]
    left: dict[str, list[int]] = {}
    while waiting:
        _, _, row, above = heapq.heappop(waiting)
        if len(rects) >= limit and row not in wanted:
            left.setdefault(above, []).append(row)
            continue
        run = _run(tree, row) if join else [row]
        rect = _rect(tree, run, above, values, used, excerpt)
        rects.append(rect)
        holder.update((int(tree.ids[r]), rect.key) for r in run)
        for child in tree.children(run[-1]):
            heapq.heappush(waiting, (child not in wanted, -int(tree.leaf_count[child]), child, rect.key))
    for above, rows in left.items():
        rects.append(_fold(tree, above, rows, values, used))
        for row in rows:
            folded += int(tree.end[row]) - row
    return Icicle(tuple(rects), used, int(tree.end[root]) - root, int(tree.leaf_count[root]), folded, holder)


def _run(tree: Outline, row: int) -> list[int]:
    run = [row]
    while not tree.is_leaf[run[-1]] and int(tree.end[run[-1] + 1]) == int(tree.end[run[-1]]):
        run.append(run[-1] + 1)
    return run


def _rect(
    tree: Outline, run: list[int], above: str, values: Floats, used: Scale, excerpt: Callable[[int], str]
) -> Rect:
    last = run[-1]
    node, leaves = int(tree.ids[last]), int(tree.leaf_count[last])
    value = float(values[last]) if used.names else _mean(values[run], tree.length[run])
    name = f"node {node}" if len(run) == 1 else f"nodes {int(tree.ids[run[0]])} to {node} ({len(run)} in a row)"
    facts = [tree.word("role", last), f"{int(tree.length[run].sum())} tokens", f"{leaves} leaves" if leaves > 1 else ""]
    end = [tree.word("finish", last), tree.word("status", last)] if tree.is_leaf[last] else []
    lines = [f"{name} · " + " · ".join(f for f in [*facts, *end] if f)]
    if np.isfinite(value):
        lines.append(f"{used.colouring}: {used.names[int(value)] if used.names else f'{value:.4g}'}")
    text = excerpt(run[0])
    return Rect(
        f"n{node}", above, node, f"{node} {text}".strip(), (*lines, text) if text else tuple(lines), leaves, value,
        int(used.index(np.array([value]))[0]),
    )  # fmt: skip


def _fold(tree: Outline, above: str, rows: list[int], values: Floats, used: Scale) -> Rect:
    leaves = tree.leaf_count[rows]
    nodes = int((tree.end[rows] - np.array(rows)).sum())
    value = float("nan") if used.names else _mean(values[rows], leaves)
    words = f"{len(rows)} more branches, {nodes} nodes, {int(leaves.sum())} leaves"
    lines = [words, "choose it to open them"] + ([f"{used.colouring}: {value:.4g}"] if np.isfinite(value) else [])
    return Rect(
        f"f{above[1:]}", above, int(above[1:]), f"… {len(rows)} more", tuple(lines), int(leaves.sum()), value,
        int(used.index(np.array([value]))[0]),
    )  # fmt: skip


def _mean(values: Floats, weights: np.ndarray) -> float:
    known = np.isfinite(values)
    mass = np.where(known, np.maximum(weights, 1), 0)
    return float((np.where(known, values, 0) * mass).sum() / mass.sum()) if known.any() else float("nan")
