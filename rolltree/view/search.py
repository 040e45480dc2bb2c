"""Finding nodes of a step by their text, their words and their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rolltree.analysis.text import Pieces
from rolltree.tree.shape import Floats
from rolltree.tree.store.archive import Archive
from rolltree.view.query import parse, passes

WORDS = ("role", "actor", "birth", "status", "finish", "usage")
SCANNED = 4_000_000
"""Most tokens turned into text for one search."""
_BATCH = 2000


@dataclass(frozen=True)
class Hit:
    """A node that was found."""

    tree: str
    node: int
    about: str
    excerpt: str
    path: str
    """The nodes above it, from the root down."""
    reward: float
    """Mean outcome of the judged leaves at or below it."""


@dataclass(frozen=True)
class Found:
    """Nodes that match, and how far was looked."""

    hits: tuple[Hit, ...]
    looked: int
    total: int
    note: str
    matches: int = 0
    """How many match among those that were looked at; `hits` are the first of them."""


def search(archive: Archive, pieces: Pieces, text: str, limit: int = 200) -> Found:
    """The first nodes that pass all conditions and hold all words, in stored order."""
    asked = parse(text)
    keep = passes(asked.tests, len(archive), _numbers(archive), {n: _words(archive, n) for n in WORDS})
    rows = np.flatnonzero(keep)
    if not asked:
        return Found((), 0, len(archive), "type what to look for: words, or conditions such as finish:length reward>0")
    ids, at = archive.ragged("actions")
    hits: list[Hit] = []
    looked = tokens = matches = 0
    if not asked.words:
        hits = [_hit(archive, row, _text(archive, pieces, row), 0) for row in rows[:limit].tolist()]
        return Found(tuple(hits), len(rows), len(rows), "" if hits else "nothing matches", len(rows))
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH].tolist()
        texts = pieces.texts([ids[at[r] : at[r + 1]] for r in batch])
        for row, whole in zip(batch, texts, strict=True):
            looked += 1
            low = whole.casefold()
            if all(word in low for word in asked.words):
                matches += 1
                if matches <= limit:
                    hits.append(_hit(archive, row, whole, low.find(asked.words[0])))
        tokens += int(at[batch[-1] + 1] - at[batch[0]])
        if tokens > SCANNED and looked < len(rows):
            note = f"looked at {looked:,} of {len(rows):,} nodes; narrow the search with a condition, such as role:env"
            return Found(tuple(hits), looked, len(rows), note, matches)
    return Found(tuple(hits), looked, len(rows), "" if hits else "nothing matches", matches)


def _text(archive: Archive, pieces: Pieces, row: int) -> str:
    ids, at = archive.ragged("actions")
    return pieces.text(ids[at[row] : at[row + 1]])


def _hit(archive: Archive, row: int, text: str, place: int) -> Hit:
    words = [_word(archive, name, row) for name in ("role", "status", "finish")]
    start = max(0, place - 30)
    excerpt = ("…" if start else "") + text[start : start + 140] + ("…" if len(text) > start + 140 else "")
    tree = archive.trees[int(archive.shape.tree[row])][1]
    ids, rewards = archive.numbers("id"), archive.scores("reward")
    shape = archive.shape
    below = rewards[row : shape.end[row]][shape.is_leaf[row : shape.end[row]]]
    judged = below[np.isfinite(below)]
    above = [int(ids[r]) for r in shape.path(row)]
    steps = [str(n) for n in above] if len(above) <= 8 else [*map(str, above[:3]), "…", *map(str, above[-4:])]
    return Hit(
        tree, above[-1], " · ".join(w for w in words if w), excerpt, " › ".join(steps),
        float(judged.mean()) if len(judged) else float("nan"),
    )  # fmt: skip


def _word(archive: Archive, name: str, row: int) -> str:
    codes, words = archive.words(name)
    return words[codes[row]] if codes[row] >= 0 else ""


def _numbers(archive: Archive) -> dict[str, Callable[[], Floats]]:
    out: dict[str, Callable[[], Floats]] = {
        "length": lambda: archive.numbers("length").astype(np.float64),
        "depth": lambda: archive.shape.depth.astype(np.float64),
        "level": lambda: archive.numbers("level").astype(np.float64),
        "node": lambda: archive.numbers("id").astype(np.float64),
    }
    for name in sorted(archive.score_names()):
        out[name] = _score(archive, name)
    return out


def _score(archive: Archive, name: str) -> Callable[[], Floats]:
    return lambda: archive.scores(name)


def _words(archive: Archive, name: str) -> Callable[[], tuple[np.ndarray, list[str]]]:
    return lambda: archive.words(name)
