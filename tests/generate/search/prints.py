"""A forest in twelve letters, to hold it against what an earlier version grew."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from itertools import islice
from typing import Any

from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Forest


def print_of(forest: Forest) -> str:
    """A forest's tokens, shape, outcomes and decisions in twelve letters; times and the last digits left out."""
    told: list[Any] = []
    for tree in forest:
        told.append((tree.id, tree.notes.get("answer")))
        for n in tree.walk():
            scores = sorted((k, round(float(v), 9)) for k, v in n.scores.items())
            told.append((n.id, n.parent, n.role, n.actions.tolist(), n.birth, n.status, n.finish, n.actor, scores))
        # What a judge was paid is told since judges have calls; it decides nothing.
        heard = (e for e in tree.events if not e.why.startswith("judged "))
        told.extend((e.kind, e.node, e.why, sorted((k, _plain(v)) for k, v in e.numbers.items())) for e in heard)
    return sha256(repr(told).encode()).hexdigest()[:12]


def _plain(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def spelled(strategy: TreeStrategy) -> Forest:
    task = SpellTask(stop=())
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 4), seed=2))
