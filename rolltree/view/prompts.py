"""The prompts of a step with numbers about their trees, computed over columns: no node becomes an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rolltree.analysis.text import Pieces
from rolltree.errors import unknown
from rolltree.tree.store.archive import Archive
from rolltree.view.colours import Colouring
from rolltree.view.quantities import Floats, aligned, segment_mean, segment_sum, token_values
from rolltree.view.query import parse, passes
from rolltree.view.rows import items

SHOWN = ("reward", "reward_std", "leaves", "nodes", "tokens", "forks", "depth", "pruned", "failed")
"""Metrics a table of prompts has from the start; they cost no look at single tokens."""
Metric = Callable[[Archive], Floats]
_COMPUTED: WeakKeyDictionary[Archive, dict[str, Floats]] = WeakKeyDictionary()
"""Numbers per tree, kept as long as their forest is: turning a page must not count a million nodes again."""


@dataclass(frozen=True)
class ShownPrompt:
    """One tree in a list."""

    tree: str
    item: str
    text: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class ShownPrompts:
    """A page of the prompts of a step, sorted and filtered."""

    rows: tuple[ShownPrompt, ...]
    total: int
    kept: int
    columns: tuple[str, ...]
    page: int
    pages: int


def metrics(archive: Archive) -> dict[str, Metric]:
    """Everything the trees of a forest can be sorted by, name → number per tree."""
    out: dict[str, Metric] = {
        "reward": _leaf_mean,
        "reward_std": _reward_std,
        "best": _best,
        "leaves": _leaves,
        "nodes": _nodes,
        "tokens": _tokens,
        "forks": _forks,
        "depth": _depth,
        "pruned": partial(_status, word="pruned"),
        "failed": partial(_status, word="failed"),
        "entropy": partial(_tokens_mean, kind="entropy"),
        "mismatch": partial(_tokens_mean, kind="mismatch"),
        "advantage": partial(_tokens_mean, kind="advantage"),
        "staleness": partial(_tokens_mean, kind="staleness"),
    }
    return out | {
        f"score.{name}": partial(_score, name=name) for name in sorted(archive.score_names()) if name != "reward"
    }


def prompts(
    archive: Archive, pieces: Pieces, *, sort: str = "reward_std", descending: bool = True, query: str = "",
    page: int = 0, size: int = 100,
) -> ShownPrompts:  # fmt: skip
    """A page of trees in the order of a metric; trees without it come last."""
    known = metrics(archive)
    if sort not in known:
        raise unknown("metric", sort, known, "choose one from the list")
    asked = parse(query)
    count = len(archive.trees)
    computed = _COMPUTED.setdefault(archive, {})

    def number(name: str) -> Floats:
        if name not in computed:
            computed[name] = known[name](archive)
        return computed[name]

    keep = passes(asked.tests, count, {name: partial(number, name) for name in known}, {})
    names = items(archive)
    if asked.words:
        texts = _texts(archive, pieces, np.flatnonzero(keep))
        for i, text in zip(np.flatnonzero(keep).tolist(), texts, strict=True):
            whole = f"{archive.trees[i][1]} {names[i]} {text}".casefold()
            keep[i] = all(word in whole for word in asked.words)
    found = np.flatnonzero(keep)
    values = number(sort)[found]
    order = np.argsort(-values if descending else values, kind="stable")
    found = found[order]
    pages = max(1, -(-len(found) // size))
    page = min(max(page, 0), pages - 1)
    rows = found[page * size : (page + 1) * size]
    shown = tuple(dict.fromkeys((sort, *(t.name for t in asked.tests if t.name in known), *SHOWN)))
    texts = _texts(archive, pieces, rows)
    out = tuple(
        ShownPrompt(archive.trees[i][1], names[i], text, {name: float(number(name)[i]) for name in shown})
        for i, text in zip(rows.tolist(), texts, strict=True)
    )
    return ShownPrompts(out, count, len(found), shown, page, pages)


def by_spread(archive: Archive) -> list[str]:
    """The trees in the order of their spread of outcomes, the widest first: where something is decided."""
    spread = np.nan_to_num(_reward_std(archive), nan=-1.0)
    return [archive.trees[i][1] for i in np.argsort(-spread, kind="stable").tolist()]


def neighbours(archive: Archive, tree: str) -> tuple[str | None, str | None]:
    """The trees before and after one, by spread."""
    ids = by_spread(archive)
    at = ids.index(tree)
    return (ids[at - 1] if at else None, ids[at + 1] if at + 1 < len(ids) else None)


def _texts(archive: Archive, pieces: Pieces, trees: Any) -> list[str]:
    ids, at = archive.ragged("actions")
    roots = archive.tree_start[:-1][trees]
    return pieces.texts([ids[at[r] : at[r + 1]] for r in roots.tolist()])


def _leaf_rewards(a: Archive) -> tuple[Floats, Any]:
    values = np.where(a.shape.is_leaf, a.scores("reward"), np.nan)
    return values, a.tree_start


def _leaf_mean(a: Archive) -> Floats:
    return segment_mean(*_leaf_rewards(a))


def _reward_std(a: Archive) -> Floats:
    values, at = _leaf_rewards(a)
    mean = segment_mean(values, at)
    return np.sqrt(segment_mean((values - np.repeat(mean, np.diff(at))) ** 2, at))


def _best(a: Archive) -> Floats:
    values, at = _leaf_rewards(a)
    best = np.maximum.reduceat(np.where(np.isfinite(values), values, -np.inf), at[:-1]) if len(at) > 1 else np.zeros(0)
    return np.where(np.isfinite(best), best, np.nan)


def _leaves(a: Archive) -> Floats:
    return segment_sum(a.shape.is_leaf, a.tree_start)


def _nodes(a: Archive) -> Floats:
    return np.diff(a.tree_start).astype(np.float64)


def _tokens(a: Archive) -> Floats:
    codes, words = a.words("role")
    policy = codes == words.index("policy") if "policy" in words else np.zeros(len(a), np.bool_)
    return segment_sum(np.where(policy, a.numbers("length"), 0), a.tree_start)


def _forks(a: Archive) -> Floats:
    return segment_sum(a.shape.child_count > 1, a.tree_start)


def _depth(a: Archive) -> Floats:
    return np.maximum.reduceat(a.shape.depth, a.tree_start[:-1]).astype(np.float64) if len(a.trees) else np.zeros(0)


def _status(a: Archive, word: str) -> Floats:
    codes, words = a.words("status")
    hit = a.shape.is_leaf & (codes == words.index(word)) if word in words else np.zeros(len(a), np.bool_)
    return segment_sum(hit, a.tree_start)


def _tokens_mean(a: Archive, kind: Colouring) -> Floats:
    if kind == "advantage":
        (gain, loss, weight), at = aligned(a, ("gain", "loss", "weight"), 0, len(a))
        with np.errstate(invalid="ignore", divide="ignore"):
            return segment_sum(gain + loss, at[a.tree_start]) / segment_sum(weight, at[a.tree_start])
    values, at = token_values(a, kind, 0, len(a))
    return segment_mean(np.abs(values) if kind == "mismatch" else values, at[a.tree_start])


def _score(a: Archive, name: str) -> Floats:
    return segment_mean(a.scores(name), a.tree_start)
