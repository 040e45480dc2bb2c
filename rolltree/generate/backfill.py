"""Backfill: where the missing leaves of a tree come from. Tree samplers end with fewer leaves than they were asked for.

- `restart`: fresh rollouts from the root (ARPO, AEPO, ECHO).
- `boundary`: a finished leaf is cut at a random boundary of its path and goes on from there (TreePO's fallback).

Duplicating a leaf, the last resort of released samplers, is not offered: copies shrink the group's spread and count the
same evidence twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal

from rolltree.generate.decode import Draw
from rolltree.generate.hand import Hand
from rolltree.generate.turns import play
from rolltree.tree import Node

Backfill = Literal["none", "restart", "boundary"]

_COUNTED = ("done", "failed", "paused")
"""A failed leaf is not made up for: what breaks one may break them all, and it is counted and shown as failed."""


async def backfill(
    hand: Hand, mode: Backfill, leaves: int, *, ways: int = 2, want: Collection[str] = (), draw: Draw | None = None
) -> int:  # fmt: skip
    """Grow the leaves that are missing to reach `leaves` and return how many were asked for.

    `boundary` cuts a random finished leaf (by eos or answer) at a random node boundary of its path and grows `ways`
    branches there, until nothing is missing; where no leaf qualifies it restarts.
    """
    asked = 0
    while mode != "none":
        missing = leaves - sum(leaf.status in _COUNTED for leaf in hand.tree.leaves() if leaf.parent is not None)
        missing = int(min(missing, hand.budget.remaining("leaves")))
        if missing <= 0:
            break
        place = hand.tree.root if mode == "restart" else _boundary(hand, asked)
        count = missing if mode == "restart" else min(ways, missing)
        birth = "restart" if place.parent is None else "boundary"
        hand.event(
            "backfill", place, f"{missing} of {leaves} leaves are missing", missing=missing, ways=count, mode=mode
        )
        async with asyncio.TaskGroup() as group:
            grown = [group.create_task(play(hand, place, birth=birth, want=want, **(draw or {}))) for _ in range(count)]
        asked += count
        if not any(task.result() is not place for task in grown):
            break  # nothing grew: the budget has ended
    return asked


def _boundary(hand: Hand, turn: int) -> Node:
    """A random node on the path of a random properly finished leaf; the root when there is none."""
    qualified: Sequence[Node] = [
        leaf for leaf in hand.tree.leaves() if leaf.status == "done" and leaf.finish in ("eos", "answer", "stop")
    ]
    if not qualified:
        return hand.tree.root
    rng = hand.rng.child("backfill", turn).generator()
    path = hand.tree.path(qualified[int(rng.integers(len(qualified)))])
    places = [n for n in path[:-1] if n.role != "prompt" or len(path) == 2]
    return places[int(rng.integers(len(places)))] if places else hand.tree.root
