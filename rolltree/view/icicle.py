"""A tree as an icicle: a rectangle per node, as wide as the leaves below it, coloured by what is asked for.

A big tree is folded, never cut: runs of nodes without a fork become one rectangle, the narrowest branches of a node
become one "… more" rectangle, and so does what lies too deep; each opens when it is chosen. Chains of turns without a
fork are one rectangle in small trees too, unless every turn is asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rolltree.analysis.source import ViewError
from rolltree.tree.shape import Floats
from rolltree.view.colours import Colouring, Scale
from rolltree.view.outline import Outline

LIMIT = 1500
"""Most rectangles drawn one by one."""
LEVELS = 44
"""Most levels drawn; what lies deeper is folded."""
CHAIN = 4
"""Nodes without a fork from which on a run of turns is one rectangle."""
NARROW = 250
"""A rectangle that is a smaller part of the whole than one in so many has no room for words."""

Mark = Literal["new", "fork", "pruned", "truncated", "spliced", "forced", "failed"]
MARKS: Mapping[Mark, tuple[str, str]] = {
    "new": ("+", "sampled in this what-if"),
    "fork": ("◆", "forked here"), "pruned": ("▨", "pruned"), "truncated": ("✂", "cut off at the length limit"),
    "spliced": ("⧉", "spliced in"), "forced": ("»", "forced: not sampled by the policy"), "failed": ("✕", "failed"),
}  # fmt: skip
"""What a rectangle is marked with, in a sign and in words; pruned ones are hatched as well."""


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
    marks: tuple[Mark, ...] = ()
    level: int = 0
    at: int = 0
    """Leaves to the left of it."""


@dataclass(frozen=True)
class Icicle:
    """All rectangles of a tree, or of the part below a node."""

    rects: tuple[Rect, ...]
    scale: Scale
    nodes: int
    leaves: int
    folded: int
    """Nodes inside folded rectangles."""
    levels: int
    _rows: tuple[tuple[int, int, str], ...]
    """First and last row of the nodes in each rectangle, and its key."""
    _row: Callable[[int], int]

    def holder(self, node: int) -> str:
        """The rectangle that shows a node; "" where it is folded away or not below the drawn root."""
        try:
            row = self._row(node)
        except ViewError:
            return ""  # a node that is no longer there, such as a removed span
        return next((key for first, last, key in self._rows if first <= row <= last), "")


@dataclass(frozen=True)
class _Waiting:
    """A node to be drawn: the row, what it hangs from, and its level."""

    row: int
    above: str
    level: int


@dataclass(frozen=True)
class _Folded:
    """Branches that are not drawn one by one, and the node whose choice opens them."""

    nodes: int
    leaves: int
    value: float
    opens: int


def icicle(
    tree: Outline, colouring: Colouring, *, root: int = 0, selected: int | None = None, limit: int = LIMIT,
    levels: int = LEVELS, turns: bool = False, excerpt: Callable[[int], str] = lambda row: "",
) -> Icicle:  # fmt: skip
    """Draw a tree from a row on; `excerpt` gives a few words of a row's text. The selected row is always drawn.

    `turns` draws every node of a chain without a fork by itself, as far as that fits.
    """
    values = tree.values(colouring)
    deep = int(tree.depth[root : tree.end[root]].max() - tree.depth[root]) >= levels
    join = 2 if deep or int(tree.end[root]) - root > limit else 0 if turns else CHAIN
    path = [] if selected is None else [r for r in tree.path(selected) if r >= root]
    wanted = set(path)
    used = tree.scale(colouring)
    rects: list[Rect] = []
    spans: list[tuple[int, int, str]] = []
    stops = np.flatnonzero(tree.child_count != 1)
    heap: list[tuple[bool, int, int, _Waiting]] = [(False, 0, root, _Waiting(root, "", 0))]
    left: dict[str, list[_Folded]] = {}
    whole = int(tree.leaf_count[root])
    while heap:
        *_, here = heapq.heappop(heap)
        row, last = here.row, here.row
        if len(rects) >= limit and row not in wanted:
            left.setdefault(here.above, []).append(_folded(tree, row, values, used, int(here.above[1:])))
            continue
        end = int(stops[np.searchsorted(stops, row)])
        if not join or end - row + 1 < join:
            end = row
        below = 0 if selected is None or row not in wanted else int(tree.depth[selected] - tree.depth[end])
        # The way down to a node that lies too deep is one rectangle; the node itself stands below it.
        last = path[-2] if here.level >= levels - 3 and below > 1 else end
        kept = _shown_rows(tree, row, last)
        words = excerpt if NARROW * int(tree.leaf_count[row]) >= whole else _nothing
        rect = replace(_rect(tree, row, last, kept, here.above, values, used, words), level=here.level)
        rects.append(rect)
        spans.append((row, last, rect.key) if kept else (last, last, rect.key))
        if not kept:
            spans += [(r, r, rect.key) for r in path if row <= r < last]
            left[rect.key] = _beside(tree, row, last)
        for child in tree.children(last):
            if here.level >= levels - 2 and child not in wanted:
                left.setdefault(rect.key, []).append(_folded(tree, child, values, used, int(rect.key[1:])))
            else:
                rank = (child not in wanted, -int(tree.leaf_count[child]), child)
                heapq.heappush(heap, (*rank, _Waiting(child, rect.key, here.level + 1)))
    depth = {r.key: r.level for r in rects}
    folds = [replace(_fold(above, parts, used), level=depth[above] + 1) for above, parts in left.items() if parts]
    folded = sum(part.nodes for parts in left.values() for part in parts)
    placed = _placed([*rects, *folds], {key: first for first, _, key in reversed(spans)})
    top = max((r.level for r in placed), default=0) + 1
    nodes = int(tree.end[root]) - root
    return Icicle(placed, used, nodes, whole, folded, top, tuple(spans), tree.row)


def _shown_rows(tree: Outline, row: int, last: int) -> bool:
    """Whether the rows from one to another are a run without a fork."""
    return bool((tree.child_count[row:last] == 1).all())


def _placed(rects: list[Rect], rows: Mapping[str, int]) -> tuple[Rect, ...]:
    """The rectangles with their places: children side by side in the tree's order, folded branches last."""
    below: dict[str, list[Rect]] = {}
    for rect in rects:
        below.setdefault(rect.above, []).append(rect)
    out: list[Rect] = []
    waiting = [("", 0)]
    while waiting:
        above, at = waiting.pop()
        for rect in sorted(below.get(above, ()), key=lambda r: (r.key[0] == "f", rows.get(r.key, 0))):
            out.append(replace(rect, at=at))
            waiting.append((rect.key, at))
            at += rect.leaves
    return tuple(out)


def _rect(
    tree: Outline, row: int, last: int, kept: bool, above: str, values: Floats, used: Scale,
    excerpt: Callable[[int], str],
) -> Rect:  # fmt: skip
    node, leaves = int(tree.ids[last]), int(tree.leaf_count[row])
    run = np.arange(row, last + 1) if kept else np.array([last])
    value = float(values[last]) if used.names else _mean(values[run], tree.length[run])
    count = int(tree.depth[last] - tree.depth[row]) + 1
    name = f"node {node}" if count == 1 else f"nodes {int(tree.ids[row])} to {node} ({count} in a row)"
    if not kept:
        name = f"the way down to node {node}: {count:,} nodes; choose it to look from there"
    facts = [tree.word("role", last), f"{int(tree.length[run].sum())} tokens", f"{leaves} leaves" if leaves > 1 else ""]
    end = [tree.word("finish", last), tree.word("status", last)] if tree.is_leaf[last] else []
    lines = [f"{name} · " + " · ".join(f for f in [*facts, *end] if f)]
    marks = _marks(tree, run, last)
    if marks:
        forked = {"fork": f"forked into {int(tree.child_count[last])}"}
        lines.append(", ".join(forked.get(m, MARKS[m][1]) for m in marks))
    if np.isfinite(value):
        lines.append(f"{used.colouring}: {used.names[int(value)] if used.names else f'{value:.4g}'}")
    text = excerpt(row)
    turns = sum(tree.word("role", int(r)) == "env" for r in run) if count < 200 else 0
    short = (
        f"{node} {text}"
        if count == 1
        else f"{node} ({turns} turns) {text}"
        if turns
        else f"{node} ({count:,} nodes) {text}"
    )
    shade = int(used.index(np.array([value]))[0])
    return Rect(
        f"n{node}", above, node, short.strip(), (*lines, text) if text else tuple(lines), leaves, value, shade, marks
    )


def _marks(tree: Outline, run: np.ndarray, last: int) -> tuple[Mark, ...]:
    leaf = bool(tree.is_leaf[last])
    few = run if len(run) < 200 else np.array([last])
    spliced = any(tree.word("role", int(r)) == "splice" or tree.word("birth", int(r)) == "splice" for r in few)
    forced = tree.forced[run].any()
    has: dict[Mark, bool] = {
        "new": False,  # only a what-if knows
        "fork": int(tree.child_count[last]) > 1,
        "pruned": leaf and tree.word("status", last) == "pruned",
        "failed": leaf and tree.word("status", last) == "failed",
        "truncated": leaf and tree.word("finish", last) == "length",
        "spliced": spliced,
        "forced": bool(forced),
    }
    return tuple(mark for mark in MARKS if has[mark])


def _folded(tree: Outline, row: int, values: Floats, used: Scale, opens: int) -> _Folded:
    value = float("nan") if used.names else float(values[row])
    return _Folded(int(tree.end[row]) - row, int(tree.leaf_count[row]), value, opens)


def _beside(tree: Outline, row: int, last: int) -> list[_Folded]:
    """What grows from the nodes between two rows of a path, beside the path."""
    leaves = int(tree.leaf_count[row] - tree.leaf_count[last])
    between = int(tree.depth[last] - tree.depth[row])
    nodes = int(tree.end[row]) - row - (int(tree.end[last]) - last) - between
    return [_Folded(nodes, leaves, float("nan"), int(tree.ids[row]))] if leaves else []


def _fold(above: str, parts: list[_Folded], used: Scale) -> Rect:
    leaves, nodes = sum(p.leaves for p in parts), sum(p.nodes for p in parts)
    value = _mean(np.array([p.value for p in parts]), np.array([p.leaves for p in parts]))
    branches = f"{len(parts):,} more branches" if len(parts) > 1 else "what grew here"
    lines = [f"{branches}, {nodes:,} nodes, {leaves:,} leaves", "choose it to open them"]
    lines += [f"{used.colouring}: {value:.4g}"] if np.isfinite(value) else []
    shade = int(used.index(np.array([value]))[0])
    opens = parts[0].opens
    return Rect(f"f{opens}", above, opens, f"… {nodes:,} more", tuple(lines), leaves, value, shade)


def _mean(values: Floats, weights: np.ndarray) -> float:
    known = np.isfinite(values)
    mass = np.where(known, np.maximum(weights, 1), 0)
    return float((np.where(known, values, 0) * mass).sum() / mass.sum()) if known.any() else float("nan")


def _nothing(row: int) -> str:
    del row
    return ""
