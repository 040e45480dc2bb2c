"""Which of the finished groups make the next batch, where batches are made of groups and not of whole plans."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rolltree.control.schedule.rollout import Group
from rolltree.control.schedule.stop import Stop


@dataclass(slots=True)
class Window:
    """Finished groups that wait to be trained: those that may be taken, and those that a window still holds back."""

    stop: Stop
    taken: int = 0
    """Groups that may be taken and are not settled: the live entries of `_inside`."""
    _inside: list[tuple[int, Group]] = field(default_factory=list[tuple[int, Group]])
    _outside: list[tuple[int, int, Group]] = field(default_factory=list[tuple[int, int, Group]])
    _head: int = 0
    """The oldest group that is neither settled nor collected."""
    _finished: int = 0

    def add(self, group: Group) -> None:
        """A group is finished."""
        key = group.number if self.stop.order == "created" else self._finished
        self._finished += 1
        heapq.heappush(self._outside, (group.number, key, group))

    def slide(self, groups: int, batch: int, passed: Callable[[int], bool]) -> None:
        """Collect what the window reaches; collecting the oldest group moves the window on.

        `groups` have begun so far; `passed` says whether one of them is settled or collected.
        """
        moved = True
        while moved:
            moved = False
            if self.stop.window is not None:
                while self._head < groups and passed(self._head):
                    self._head += 1
            edge = self.stop.edge(self._head, batch)
            while self._outside and self._outside[0][0] < edge:
                _, key, group = heapq.heappop(self._outside)
                if not group.usage:
                    group.collected = moved = True
                    heapq.heappush(self._inside, (key, group))
                    self.taken += 1

    def first(self, count: int) -> list[Group]:
        """The first of the collected groups; they are no longer here, and `taken` until they are settled."""
        batch: list[Group] = []
        while len(batch) < count:
            _, group = heapq.heappop(self._inside)
            if not group.usage:
                batch.append(group)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values, groups by their numbers."""
        return {
            "head": self._head, "finished": self._finished,
            "inside": sorted((key, g.number) for key, g in self._inside if not g.usage),
            "outside": sorted((number, key) for number, key, g in self._outside if not g.usage),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any], groups: Mapping[int, Group]) -> None:
        """Go back to a state."""
        self._head, self._finished = state["head"], state["finished"]
        self._inside = [(key, groups[number]) for key, number in state["inside"]]  # sorted, and so a heap
        self._outside = [(number, key, groups[number]) for number, key in state["outside"]]
        self.taken = len(self._inside)
