"""Where tokens went that did not teach at once: those of pruned or failed branches, and partial rollouts carried on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rolltree.tree import Node, Tree


def lost_tokens(trees: Iterable[Tree]) -> dict[str, float]:
    """Policy tokens below which every leaf was pruned or failed, by which of the two; a mixed branch counts as pruned.

    What such a branch shares with one that lives on is not lost.
    """
    out = {"tokens.pruned": 0.0, "tokens.failed": 0.0}
    for tree in trees:
        lost = [leaf for leaf in tree.leaves() if leaf.status in ("pruned", "failed")]
        if not lost:
            continue
        alive = {n.id for leaf in tree.leaves() if leaf.status not in ("pruned", "failed") for n in tree.path(leaf)}
        counted = set[int]()
        for leaf in sorted(lost, key=lambda leaf: leaf.status != "pruned"):
            for node in tree.path(leaf):
                if node.trainable and not node.forced and node.id not in alive and node.id not in counted:
                    counted.add(node.id)
                    out[f"tokens.{leaf.status}"] += len(node)
    return out


def carried(trees: Iterable[Tree]) -> dict[str, float]:
    """Partial rollouts: those that wait to go on, and those finished under other weights than they were begun with.

    Their age is the number of versions between their first token and the newest weights they, or any rollout beside
    them, were written under. Nothing where every rollout is of one version.
    """
    waiting: list[int] = []
    finished: list[int] = []
    tokens = 0
    for tree in trees:
        spans = {leaf.id: _versions(tree, leaf) for leaf in tree.leaves()}
        newest = max((high for _, high in spans.values()), default=-1)
        for leaf in tree.leaves():
            low, high = spans[leaf.id]
            if leaf.status == "paused" and low >= 0:
                waiting.append(newest - low)
                tokens += sum(len(n) for n in tree.path(leaf) if n.trainable)
            elif leaf.status == "done" and 0 <= low < high:
                finished.append(high - low)
    if not waiting and not finished:
        return {}
    ages = [*waiting, *finished]
    return {
        "partial.waiting": float(len(waiting)), "partial.waiting_tokens": float(tokens),
        "partial.finished": float(len(finished)), "partial.age_mean": float(np.mean(ages)),
        "partial.age_max": float(max(ages)),
    }  # fmt: skip


def _versions(tree: Tree, leaf: Node) -> tuple[int, int]:
    """Oldest and newest weights that wrote a path; -1 where none are known."""
    parts = [n.version for n in tree.path(leaf) if n.trainable and n.version is not None and len(n.version)]
    known = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    known = known[known >= 0]
    return (int(known.min()), int(known.max())) if len(known) else (-1, -1)
