"""Difficulty bins from outcomes so far, with hysteresis so that a prompt on a border does not flip (GDRO)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rolltree.tree.values import storable


@storable
@dataclass(slots=True)
class Bins:
    """Each prompt's windowed mean of "any rollout of a visit was right", cut into `count` bins (arXiv 2601.19280).

    A prompt changes its bin only if its mean passes the border by `margin`. With `graded` the mean is of pass rates.
    """

    count: int = 10
    window: int = 8
    """Visits remembered; 0 = all."""
    margin: float = 0.02
    graded: bool = False
    visits: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    places: dict[str, int] = field(default_factory=dict[str, int])

    def of(self, uid: str) -> int:
        """A prompt's bin, 0 the hardest; the middle one before the first visit."""
        return self.places.get(uid, self.count // 2)

    def observe(self, uid: str, solved: float, n: int) -> None:
        """Add a visit and perhaps change the bin."""
        if not n:
            return
        past = [*self.visits.get(uid, ()), solved / n if self.graded else float(solved > 0)]
        self.visits[uid] = past[-self.window :] if self.window else past
        mean = sum(self.visits[uid]) / len(self.visits[uid])
        here = self.places.get(uid)
        to = min(math.floor(mean * self.count), self.count - 1)
        if here is None:
            self.places[uid] = to
        elif to != here:
            border = (here + 1) / self.count if to > here else here / self.count
            # At the very ends no mean can lie beyond a border by more than there is room.
            room = min(self.margin, 1 - border if to > here else border)
            if abs(mean - border) >= room - 1e-12:
                self.places[uid] = to
