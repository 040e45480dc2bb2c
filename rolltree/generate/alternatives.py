"""The token that was not drawn: forced forks as LATR and ECHO make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolltree.generate.hand import Hand
from rolltree.tree import Node


async def alternative(
    hand: Hand, leaf: Node, position: int, token: int, *, why: str, numbers: Mapping[str, Any] | None = None
) -> Node | None:
    """Force `token` where a leaf's path has another one, after `position` actions; None = no leaf is in the budget.

    The forced run carries the policy's log-prob, and entropy and alternatives of the place, where the path has them.
    A token that ends a text or a turn ends it here too, so the run is `done`, or open for the environment.
    """
    head = hand.place(leaf, position)
    forced = await hand.force(head, [token], role="policy", why=why, numbers=numbers)
    if forced is None or forced.status != "open":
        return forced
    path = hand.tree.path(leaf)
    beside = path[[n.id for n in path].index(head.id) + 1]
    # The same prefix, so the same distribution that the path's own action was drawn from.
    forced.entropy = None if beside.entropy is None else beside.entropy[:1].copy()
    forced.top = None if beside.top is None else beside.top.cut(0, 1)
    stop = next((s for s in hand.task.stop if s in hand.turn(forced)), None)
    if token == hand.codec.eos_id:
        hand.close(forced, "eos", "the forced token ends the text")
    elif stop is not None:
        forced.finish, forced.notes["stopped_by"] = "stop", stop
        if not hand.interactive:
            hand.close(forced, "stop", f"the forced token completes {stop!r}")
    return forced
