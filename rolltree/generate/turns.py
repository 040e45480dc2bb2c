"""Stretches and whole branches: the rollout loop that every topology shares.

A stretch ends at a boundary, where a strategy may decide again: after a segment of so many tokens, at the environment's
answer to a turn, or at the rollout's end. To play a branch is to stretch it until it ends. Segment trees (TreePO), tool
trees (ARPO, AEPO, TreePS-RAG) and step searches (ETS) differ only in what they do between stretches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Unpack

from rolltree.generate.hand import Hand
from rolltree.generate.recorder import latest_rollout
from rolltree.generate.requests import SamplingOptions
from rolltree.tree import Birth, Node

Watch = Callable[[Hand, Node], Awaitable[None]]
"""Looks at an open leaf between two stretches; closes, prunes or leaves it."""


async def stretch(
    hand: Hand,
    node: Node,
    n: int = 1,
    *,
    birth: Birth | None = None,
    want: Collection[str] = (),
    why: str = "",
    verify: bool = True,
    **draw: Unpack[SamplingOptions],
) -> list[Node]:
    """Grow n continuations up to the next boundary and return where each stands; fewer, or none, at a budget's end.

    None either where the node was pruned in the meantime, by whoever else acts on the tree.
    An `open` node may be stretched again; a `done` one has been verified. Pass `max_tokens` for segments; without it a
    stretch is a whole rollout, or one turn and its answer where an environment answers.
    """
    if node.status in ("pruned", "failed"):
        return []
    grown = await hand.extend(node, n=n, birth=birth, want=want, why=why, **draw)
    if not grown and verify and lacks_outcome(node):
        await hand.verify(node)
    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(settle(hand, child, verify)) for child in grown]
    return [end.result() for end in ends]


async def play(
    hand: Hand,
    node: Node,
    *,
    birth: Birth | None = None,
    want: Collection[str] = (),
    verify: bool = True,
    watch: Watch | None = None,
    **draw: Unpack[SamplingOptions],
) -> Node:
    """Roll one branch out from a node and return its leaf; `birth` says how its first run came to be.

    `watch` looks at the leaf after every stretch that did not end it (give `max_tokens`) and may close or prune it.
    The leaf is `done`, `failed` or `paused`; only a done one is verified. Where nothing could be grown the leaf is the
    node itself, verified too if it ended just now.
    """
    here = node
    if hands_over(hand, here):
        here = await settle(hand, here, verify)
        if here is node or here.status != "open":
            return here
    while True:
        grown = await stretch(hand, here, birth=birth, want=want, verify=verify, **draw)
        if not grown:
            return here
        here, birth = grown[0], None
        if here.status == "open" and watch is not None:
            await watch(hand, here)
        if here.status != "open":
            return here


async def continued(hand: Hand, node: Node, n: int) -> list[Node]:
    """Leaves with an outcome of n rollouts drawn anew from an open node: what a Monte Carlo value is the mean of."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(hand, node, birth="resample")) for _ in range(n)]
    return [leaf for task in tasks if (leaf := task.result()) is not node and "reward" in leaf.scores]


async def proceed(
    hand: Hand, leaf: Node, *, want: Collection[str] = (), verify: bool = True, watch: Watch | None = None,
    **draw: Unpack[SamplingOptions],
) -> Node:  # fmt: skip
    """Do what is due at a leaf that was paused or forced (in this run or an earlier one) and play it to its end."""
    if leaf.status == "paused":
        await hand.resume(leaf, want=want, **draw)
    if leaf.status == "open":
        return await play(hand, leaf, want=want, verify=verify, watch=watch, **draw)
    if verify and lacks_outcome(leaf):
        await hand.verify(leaf)
    return leaf


def turns(hand: Hand, node: Node) -> int:
    """Environment steps of the rollout that a node belongs to."""
    return sum(n.role == "env" for n in latest_rollout(hand.tree.path(node)))


def lacks_outcome(leaf: Node) -> bool:
    """Whether a leaf has ended by itself and was not verified yet."""
    return leaf.status == "done" and leaf.is_leaf and leaf.parent is not None and "reward" not in leaf.scores


def hands_over(hand: Hand, node: Node) -> bool:
    """Whether it is the environment's turn: an open leaf stopped at one of the task's own stop strings."""
    if not (hand.interactive and node.is_leaf and node.role == "policy" and node.status == "open"):
        return False
    return node.finish == "stop" and node.notes.get("stopped_by") in hand.task.stop


async def settle(hand: Hand, node: Node, verify: bool = True) -> Node:
    """Let the environment answer where it is its turn, verify what has ended, and return where the path stands."""
    here = node
    if hands_over(hand, here):
        if turns(hand, here) >= hand.max_turns:
            hand.close(here, "depth", f"the limit of {hand.max_turns} environment steps")
        else:
            answer = await hand.act(here)
            here = here if answer is None else answer
    if verify and lacks_outcome(here):
        await hand.verify(here)
    return here
