"""How old a group may be when it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rolltree.control.order import ControlError


@dataclass(frozen=True, slots=True)
class StalenessBound:
    """A bound on versions between a group's first token and the weights that it trains.

    Admission alone cannot keep such a bound: finished groups overtake slow ones. `wait` takes a batch only if all that
    it leaves behind can still be trained in time, the oldest first; with admission by `Ahead(most)` it never waits in
    vain. `drop` throws groups away that became too old: finished ones, and with `early` also those still under way.
    """

    most: int | None = None
    """None = no bound."""
    late: Literal["wait", "drop"] = "drop"
    early: bool = True

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 0:
            raise ControlError(f"age: most={self.most} lets nothing be trained; give 0, a number of versions or None")

    def too_old(self, born: int, version: int) -> bool:
        """Whether a group is to be dropped."""
        return self.late == "drop" and self.most is not None and version - born > self.most

    def holds(self, untrained: Mapping[int, int], finished: Mapping[int, int], *, version: int, batch: int) -> bool:
        """Whether a batch must not be taken yet, from the numbers of untrained and finished groups by birth.

        A group born at b must be trained at version b + most at the latest. After this batch, taken from the finished
        oldest first, b + most − version more batches are taken by then: those born at b or before must fit into them.
        """
        if self.late != "wait" or self.most is None:
            return False
        waiting = there = 0
        for born in sorted(untrained):
            waiting += untrained[born]
            there += finished.get(born, 0)
            if waiting - min(batch, there) > (born + self.most - version) * batch:
                return True
        return False
