"""Stop strings that straddle two runs.

An engine looks for stop strings in what one request wrote. A string that began in an earlier segment of the same turn
and ends in this one would be missed, so segments would not stop where an unbroken rollout does. Such a run is shortened
to the token that completed the string. Stopping is a function of the tokens alone, so the distribution stays the
policy's; the tokens written after it stay paid and are reported as wasted.
"""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.engine.protocol import Codec, stop_text
from rolltree.tree import Node
from rolltree.tree.node import PER_ACTION, Array


def straddling_stop(codec: Codec, before: Array, written: Array, stops: Sequence[str]) -> tuple[int, str] | None:
    """How many tokens of `written` complete a stop string that began in `before`, and which; None = there is none."""
    longest = max(map(len, stops), default=0)
    if longest < 2 or len(before) == 0:
        return None
    tail = stop_text(codec, before[-longest:], stops)
    for k in range(1, min(longest, len(written)) + 1):
        text = tail + stop_text(codec, written[:k], stops)
        for stop in stops:
            at = text.find(stop, max(0, len(tail) - len(stop) + 1))
            if 0 <= at < len(tail):
                return k, stop
    return None


def shorten(node: Node, k: int) -> None:
    """Keep the first k actions of a leaf."""
    node.actions = node.actions[:k]
    for name in PER_ACTION:
        array = getattr(node, name)
        if array is not None:
            setattr(node, name, array[:k])
    if node.top is not None:
        node.top = node.top.cut(0, k)
