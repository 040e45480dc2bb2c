"""A tree as one HTML file: for a paper, an issue or a colleague without the viewer.

The file asks the network for nothing, and its content policy would not let it: styles and the one script are inside,
and what models, tools and prompts wrote is data that is shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from rolltree.analysis.source import RunSource, ViewError, nothing
from rolltree.analysis.text import Pieces, pieces_of
from rolltree.tree.store.atomic import new_file
from rolltree.view.colours import COLOURINGS, Colouring, Scale
from rolltree.view.model import node_facts
from rolltree.view.outline import Outline, outline
from rolltree.view.prompts import by_spread
from rolltree.view.quantities import newest
from rolltree.view.rows import Record, events_of, head, records
from rolltree.view.strip import strip
from rolltree.view.words import DECISIONS, event_text

ASSETS = Path(__file__).parent / "assets"
MOST = 400_000
"""Actions of a tree that one file holds; more would be slow to open."""
MOST_NODES = 5_000
"""Nodes of a tree that one file holds: each is a rectangle, and nothing is folded."""


def write_html(source: RunSource, step: int | None, tree: str, out: Path, *, overwrite: bool = False) -> Path:
    """Write a saved tree as a file that opens anywhere."""
    with new_file(out, overwrite=overwrite) as sink:
        sink.write(page_of(source, step, tree))
    return out


def page_of(source: RunSource, step: int | None, tree: str) -> str:
    """The whole page of a tree as text."""
    data = tree_data(source, step, tree)
    code = _asset("tokens.js").replace("export default", "const TOKENS =") + _asset("onefile.js")
    code = code.replace("</", "<\\/")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    # Within a script element only these characters could end it or begin a comment.
    content = json.dumps(data, allow_nan=False)
    for sign in "<>&":
        content = content.replace(sign, f"\\u{ord(sign):04x}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(data['title'])}</title>\n"
        f"<style>{_asset('style.css')}{_asset('onefile.css')}</style></head>\n"
        f'<body><main class="page" id="page"></main>\n<script type="application/json" id="tree">{content}</script>\n'
        f"<script>{code}</script></body></html>\n"
    )


def chosen_tree(source: RunSource, step: int | None, tree: str) -> tuple[int | None, str]:
    """The step and tree asked for; else of the newest saved step the one whose outcomes differ most."""
    steps = source.steps()
    if not steps:
        raise ViewError(nothing(source))
    at = steps[-1] if step is None else step
    archive = source.archive(at)
    if tree:
        return at, outline(archive, tree).id
    return at, by_spread(archive)[0]


def tree_data(source: RunSource, step: int | None, id: str) -> dict[str, Any]:
    """All that the page shows, as JSON."""
    archive = source.archive(step)
    tree = outline(archive, id)
    total = int(tree.length.sum())
    if total > MOST:
        raise ViewError(f"tree {id!r} has {total:,} actions and one file holds {MOST:,}; open it with: rolltree view")
    if len(tree) > MOST_NODES:
        raise ViewError(
            f"tree {id!r} has {len(tree):,} nodes and one file holds {MOST_NODES:,}; open it with: rolltree view"
        )
    pieces = pieces_of(source)
    found = records(archive, range(tree.lo, tree.hi))
    known = head(archive, tree.index)
    scales = {c: tree.scale(c) for c in get_args(Colouring)}
    means = {c: used.index(tree.values(c)) for c, used in scales.items()}
    about = [
        ("run", source.name), ("step", "" if step is None else str(step)), ("task", known["task"] or ""),
        ("item", known["item"] or ""), ("nodes", f"{len(tree):,}"), ("leaves", f"{int(tree.leaf_count[0]):,}"),
        ("model", str(source.config.get("model", ""))), ("text", pieces.note),
    ]  # fmt: skip
    told = [event_text(e) for e in events_of(archive, tree.index)]
    return {
        "title": f"{id} of {source.name}", "about": [pair for pair in about if pair[1]],
        "colourings": [
            {"name": c, "title": COLOURINGS[c], "low": s.low, "high": s.high, "palette": s.palette, "inks": s.inks,
             "names": s.names, "any": c in tree.colourings}
            for c, s in scales.items()
        ],
        "nodes": [_node(tree, row, record, pieces, scales, means) for row, record in enumerate(found)],
        "events": [
            {"sentence": e.sentence, "numbers": [list(n) for n in e.numbers], "node": e.node}
            for e in told if e.kind in DECISIONS
        ],
    }  # fmt: skip


def _node(
    tree: Outline, row: int, record: Record, pieces: Pieces, scales: dict[Colouring, Scale],
    means: dict[Colouring, NDArray[np.int64]],
) -> dict[str, Any]:  # fmt: skip
    rewards = tree.rewards[row : row + 1]
    shades: dict[str, list[int]] = {}
    run: dict[str, Any] = {}
    for colouring, used in scales.items():
        drawn = strip([record], pieces, colouring, newest=newest(tree.archive), rewards=rewards, used=used)
        run = asdict(drawn.runs[0])
        shades[colouring] = run.pop("shades")
    return run | {
        "parent": int(tree.parent[row]), "leaves": int(tree.leaf_count[row]), "shades": shades,
        "shade": {c: int(values[row]) for c, values in means.items()},
        "about": node_facts(tree, row, record), "status": record.node.status, "finish": record.node.finish or "",
    }  # fmt: skip


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
