"""Who gets in: first tree come, first served, as long as the whole reservation of everybody inside fits the memory.

A row reserves room for its longest possible length, and all rows are equally wide, so what counts is rows × width. An
admitted request can therefore always finish; what does not fit waits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from rolltree.engine.local.prefix import Ids
from rolltree.engine.local.run import LocalRun

_KNOWN = 1 << 14
"""Affinities whose age is remembered."""


class Ranks:
    """How long each affinity has been known; requests without one are each their own."""

    def __init__(self) -> None:
        self._ranks: OrderedDict[str, int] = OrderedDict()
        self._next = 0

    def rank(self, affinity: str) -> int:
        """The lower, the earlier it came first."""
        rank = self._ranks.get(affinity) if affinity else None
        if rank is None:
            rank, self._next = self._next, self._next + 1
        if affinity:
            self._ranks[affinity] = rank
            self._ranks.move_to_end(affinity)
            if len(self._ranks) > _KNOWN:
                self._ranks.popitem(last=False)
        return rank


@dataclass(frozen=True, slots=True)
class Room:
    """Rows and columns of the slab."""

    rows: int
    columns: int


def wave(
    queue: deque[LocalRun], inside: int, longest: int, known: Callable[[Ids], int], *, max_batch: int, budget: int,
    prefill: int,
) -> tuple[list[LocalRun], int]:  # fmt: skip
    """Take from the queue what fits next to `inside` rows; return it and the longest length then reserved.

    At most about `prefill` prefix tokens are read in one step, so that a long queue does not stall the decoding;
    `known` says how many of a prefix need no reading. So siblings of a tree come in together and share what they can.
    """
    taken, seen, cost = list[LocalRun](), set[bytes](), 0
    while queue:
        run = queue[0]
        if taken and run.limit == len(run.ids):
            break  # it may write nothing, so it is no row; it ends as soon as it is first
        wider = max(longest, run.limit)
        if inside + len(taken) + 1 > min(max_batch, budget // columns_for(wider, budget)):
            break
        prefix = run.ids.tobytes()
        if prefix not in seen:
            new = len(run.ids) - known(run.ids)
            if taken and cost + new > prefill:
                break
            seen.add(prefix)
            cost += new
        taken.append(queue.popleft())
        longest = wider
    return taken, longest


def columns_for(longest: int, budget: int) -> int:
    """Width for a longest length: rounded up, so that the slab is rarely rebuilt, but never beyond the budget."""
    step = 64 if longest <= 512 else 256
    return max(longest, min(-(-longest // step) * step, budget))


def room_for(rows: int, longest: int, now: Room, *, max_batch: int, budget: int) -> Room:
    """The slab to use for `rows` sequences: the present one if it will do, else a new one with room to grow."""
    if rows <= now.rows and longest <= now.columns:
        return now
    columns = columns_for(longest, budget)
    most = min(max_batch, budget // columns)
    return Room(min(most, max(rows, 2 * now.rows)), columns)
