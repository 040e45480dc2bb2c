"""One node of one tree with everything a page says about it, read without building the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rolltree.analysis.text import Pieces
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.references import REFERENCES
from rolltree.view.colours import Colouring
from rolltree.view.outline import Outline
from rolltree.view.quantities import newest
from rolltree.view.rows import Record, records
from rolltree.view.strip import Strip, strip
from rolltree.view.words import shown

MOST_NODES = 400
"""Nodes of one path on a page; longer paths keep both ends."""
EXCERPT = 28
"""Characters of a node's text on its rectangle."""


UNSAID = ("rng", TRAINER_LOGP, TRAINER_ENTROPY, REFERENCES)
"""Notes that are no facts of a node: its randomness, and numbers that stand at the tokens."""


def path_strip(tree: Outline, rows: Sequence[int], pieces: Pieces, colouring: Colouring) -> tuple[Strip, list[Record]]:
    """The tokens of some rows of a tree, in order, and their records."""
    rows = list(rows)
    passed = 0
    if len(rows) > MOST_NODES:
        left_out = rows[MOST_NODES // 2 : -MOST_NODES // 2]
        passed = int(tree.length[left_out].sum())
        rows = [*rows[: MOST_NODES // 2], *rows[-MOST_NODES // 2 :]]
    found = records(tree.archive, [tree.lo + r for r in rows])
    means = tree.values(colouring)[rows] if colouring in ("reward", "value") else np.full(len(rows), np.nan)
    laid = strip(found, pieces, colouring, newest=newest(tree.archive), rewards=means, used=tree.scale(colouring))
    return replace(laid, tokens=laid.tokens + passed, hidden=laid.hidden + passed), found


def node_facts(tree: Outline, row: int, record: Record) -> list[tuple[str, str]]:
    """Names and values of a node, in the order one asks."""
    n = record.node
    out = [
        ("written by", n.role if n.actor in (n.role, "policy") else f"{n.role}: {n.actor}"), ("birth", n.birth),
        ("status", n.status), ("finish", n.finish or ""), ("usage", n.usage), ("actions", str(len(n))),
        ("leaves below", str(int(tree.leaf_count[row])) if not tree.is_leaf[row] else ""),
        ("mean reward below", shown(float(tree.rewards[row])) if np.isfinite(tree.rewards[row]) else ""),
        ("may be trained on", "yes" if n.trainable else "no"), ("forced", "yes" if n.forced else ""),
        ("level", str(n.level) if n.level else ""), ("state key", n.state_key or ""),
    ]  # fmt: skip
    out += [(f"score {name}", shown(value)) for name, value in n.scores.items()]
    out += [(name, shown(value)) for name, value in record.notes.items() if name not in UNSAID]
    if record.state:
        out.append(("state", record.state if len(record.state) < 400 else record.state[:400] + " …"))
    return [(name, value) for name, value in out if value]


def excerpts(tree: Outline, pieces: Pieces) -> Callable[[int], str]:
    """A function from a row to a few words of its text."""
    ids, at = tree.archive.ragged("actions")

    def few(row: int) -> str:
        lo, hi = int(at[tree.lo + row]), int(at[tree.lo + row + 1])
        text = pieces.text(ids[lo : min(hi, lo + EXCERPT)])
        return text[:EXCERPT].replace("\n", "⏎") + ("…" if hi - lo > EXCERPT or len(text) > EXCERPT else "")

    return few


@dataclass(frozen=True)
class Leaf:
    """A leaf in a list."""

    row: int
    node: int
    label: str


def leaves(tree: Outline, most: int = 300) -> list[Leaf]:
    """The leaves of a tree in order, up to a number, with how they ended."""
    rewards = tree.rewards
    rows = np.flatnonzero(tree.is_leaf)[:most].tolist()
    out: list[Leaf] = []
    for row in rows:
        words = [tree.word("finish", row) or tree.word("status", row)]
        if np.isfinite(rewards[row]):
            words.append(f"reward {rewards[row]:g}")
        out.append(Leaf(row, int(tree.ids[row]), f"node {int(tree.ids[row])} · " + " · ".join(words)))
    return out
