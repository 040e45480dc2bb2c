"""Backfill: where the missing leaves of a tree come from. Tree samplers end with fewer leaves than they were asked for.

- `restart`: fresh rollouts from the root (ARPO, AEPO, ECHO).
- `boundary`: a finished leaf is cut at a random boundary of its path and goes on from there (TreePO's fallback).

- `copy`: a finished leaf is copied, the last resort of released samplers (LATR, ARPO, AEPO). Copies cost nothing,
  shrink the group's spread and count the same evidence twice; `tree.duplicated` counts them.
- `glued`: as `boundary`, but what is written belongs to a longer prefix than it then stands behind: TreePO's released
  fallback, which shortens the record and not the request. Log-probs are scored anew where the tokens stand, and
  `sampling_logprob` is gone. On tasks without environment only.

The last two are for replication: they are what released code does, not what a paper asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import Watch, play
from rolltree.tree import Node

Backfill = Literal["none", "restart", "boundary", "copy", "glued"]

_COUNTED = ("done", "failed", "paused")
"""A failed leaf is not made up for: what breaks one may break them all, and it is counted and shown as failed."""


async def backfill(
    hand: Hand,
    mode: Backfill,
    leaves: int,
    *,
    ways: int = 2,
    want: Collection[str] = (),
    draw: SamplingOptions | None = None,
    watch: Watch | None = None,
) -> int:
    """Grow the leaves that are missing to reach `leaves` and return how many were asked for.

    `boundary` cuts a random finished leaf (by eos or answer) at a random node boundary of its path and grows `ways`
    branches there, until nothing is missing; where no leaf qualifies it restarts. `watch` looks at them as `play` says.
    """
    asked = 0
    while mode != "none":
        missing = leaves - sum(leaf.status in _COUNTED for leaf in hand.tree.leaves() if leaf.parent is not None)
        missing = int(min(missing, hand.budget.remaining("leaves")))
        if missing <= 0:
            break
        if mode == "copy":
            return asked + _copies(hand, missing)
        place = hand.tree.root if mode == "restart" else _boundary(hand, asked)
        count = missing if mode == "restart" else min(ways, missing)
        birth = "restart" if place.parent is None else "boundary"
        hand.event(
            "backfill", place, f"{missing} of {leaves} leaves are missing", missing=missing, ways=count, mode=mode
        )
        if mode == "glued" and place.parent is not None and not hand.interactive:
            made = [await _glued(hand, place, want, draw or {}) for _ in range(count)]
            asked += count
            if not any(made):
                break
            continue
        async with asyncio.TaskGroup() as group:
            grown = [
                group.create_task(play(hand, place, birth=birth, want=want, watch=watch, **(draw or {})))
                for _ in range(count)
            ]
        asked += count
        # What a watch gave up is not made up for once more: it may give up whatever is written.
        if watch is not None or not any(task.result() is not place for task in grown):
            break  # nothing grew: the budget has ended
    return asked


def _copies(hand: Hand, missing: int) -> int:
    """Copies of the first finished leaf beside it."""
    leaf = next((n for n in hand.tree.leaves() if lacks_nothing(n)), None)
    made = 0
    while leaf is not None and leaf.parent is not None and made < missing and hand.budget.take("leaves"):
        hand.tree.graft(leaf.parent, hand.tree, leaf)
        made += 1
    return made


def lacks_nothing(leaf: Node) -> bool:
    """Whether a leaf is finished and has an outcome."""
    return leaf.status == "done" and leaf.parent is not None and "reward" in leaf.scores


async def _glued(hand: Hand, place: Node, want: Collection[str], draw: SamplingOptions) -> bool:
    """Write behind a deeper place than `place` and put the text behind `place`; whether anything was written."""
    tree = hand.tree
    longer = [
        leaf for leaf in tree.leaves(place) if lacks_nothing(leaf) and leaf.parent != place.id and leaf is not place
    ]
    far = tree[longer[0].parent or 0] if longer else place
    leaf = await play(hand, far, birth="boundary", want=want, verify=far is place, **draw)
    if leaf is far or far is place or leaf.status != "done":
        return leaf is not far
    ids = [n.id for n in tree.path(leaf)]
    start, written = tree[ids[ids.index(place.id) + 1]], tree[ids[ids.index(far.id) + 1]]
    glued = hand.splice(leaf, start, written, why="written behind a longer prefix, as released")
    hand.prune(written, why="moved behind a shorter prefix")
    scored = await hand.score(glued)
    if scored is None:
        return True
    glued.logp, glued.version = scored.logp, np.full(len(glued), scored.version, np.int32)
    shift = np.abs(scored.logp - leaf.logp) if leaf.logp is not None and len(leaf) == len(glued) else np.zeros(0)
    hand.event("note", glued, "log-probs behind the shorter prefix", shift=float(shift.max(initial=0.0)))
    await hand.verify(glued)
    return True


def _boundary(hand: Hand, turn: int) -> Node:
    """A random node on the path of a random properly finished leaf; the root when there is none."""
    qualified: Sequence[Node] = [
        leaf for leaf in hand.tree.leaves() if leaf.status == "done" and leaf.finish in ("eos", "answer", "stop")
    ]
    if not qualified:
        return hand.tree.root
    rng = hand.rng.child("backfill", turn).generator()
    path = hand.tree.path(qualified[int(rng.integers(len(qualified)))])
    # Behind a call that was made it is the environment's turn, not the policy's: the place is after its answer.
    places = [n for n in path[:-1] if (n.role != "prompt" or len(path) == 2) and n.finish != "tool"]
    return places[int(rng.integers(len(places)))] if places else hand.tree.root
