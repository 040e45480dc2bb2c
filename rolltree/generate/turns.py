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
    if verify and lacks_outcome(leaf):
        await hand.verify(leaf)
    return leaf


async def proceed(hand: Hand, leaf: Node, *, verify: bool = True, **draw: Unpack[Draw]) -> Node:
    """Do what is due at a leaf that was paused (in this run or an earlier one) and play it to its end."""
    if leaf.status == "paused":
        await hand.resume(leaf, **draw)
    here = await _unroll(hand, leaf, None, draw) if leaf.status == "open" else leaf
    if verify and lacks_outcome(here):
        await hand.verify(here)
    return here


def turns(hand: Hand, node: Node) -> int:
    """Environment steps on the path to a node."""
    return sum(n.role == "env" for n in hand.tree.path(node))


def lacks_outcome(leaf: Node) -> bool:
    """Whether a leaf has ended by itself and was not verified yet."""
    return leaf.status == "done" and leaf.is_leaf and leaf.parent is not None and "reward" not in leaf.scores


def hands_over(hand: Hand, node: Node) -> bool:
    """Whether it is the environment's turn: an open leaf stopped at one of the task's own stop strings."""
    if not (hand.interactive and node.is_leaf and node.role == "policy" and node.status == "open"):
        return False
    return node.finish == "stop" and node.notes.get("stopped_by") in hand.task.stop


async def _unroll(hand: Hand, node: Node, birth: Birth | None, draw: Draw) -> Node:
    here, first = node, True
    while first or here.status == "open":
        if not hands_over(hand, here):
            grown = await hand.extend(here, birth=birth if first else None, **draw)
            if not grown:
                return here
            here = grown[0]
        elif turns(hand, here) >= hand.task.max_turns:
            hand.close(here, "depth", f"the limit of {hand.task.max_turns} environment steps")
        else:
            answer = await hand.act(here)
            if answer is None:
                return here
            here = answer
        first = False
    return here
