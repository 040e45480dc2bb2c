"""One branch from a node to its end: the rollout loop that every topology shares.

Extend, let the environment answer, extend again, until the rollout is done, its limits or the budget are reached; then
verify the leaf. Tree methods fork where they like and `play` what they forked.
"""

from __future__ import annotations

from typing import Unpack

from rolltree.generate.decode import Draw
from rolltree.generate.hand import Hand
from rolltree.tree import Birth, Node


async def play(
    hand: Hand, node: Node, *, birth: Birth | None = None, verify: bool = True, **draw: Unpack[Draw]
) -> Node:
    """Roll one branch out from a node and return its leaf; `birth` says how its first run came to be.

    The leaf is `done`, `failed` or `paused`; only a done one is verified. Where nothing could be grown the leaf is the
    node itself, verified too if it ended just now.
    """
    leaf = await _unroll(hand, node, birth, draw)
    if verify and leaf.status == "done" and leaf.parent is not None and leaf.is_leaf and "reward" not in leaf.scores:
        await hand.verify(leaf)
    return leaf


async def _unroll(hand: Hand, node: Node, birth: Birth | None, draw: Draw) -> Node:
    here = node
    while True:
        grown = await hand.extend(here, birth=birth, **draw)
        birth = None
        if not grown:
            return here
        here = grown[0]
        if here.status != "open":
            return here
        if hand.interactive and here.finish == "stop" and here.notes.get("stopped_by") in hand.task.stop:
            if turns(hand, here) >= hand.task.max_turns:
                hand.close(here, "depth", f"the limit of {hand.task.max_turns} environment steps")
                return here
            answer = await hand.act(here)
            if answer is None:
                return here
            here = answer
            if here.status != "open":
                return here


def turns(hand: Hand, node: Node) -> int:
    """Environment steps on the path to a node."""
    return sum(n.role == "env" for n in hand.tree.path(node))
