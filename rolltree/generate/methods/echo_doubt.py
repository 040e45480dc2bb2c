"""Giving up on paths that lose confidence while they are written (ECHO, arXiv 2602.02150)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.hand import Hand
from rolltree.generate.methods.echo_gates import GateReading, Gauge
from rolltree.generate.signals import check_threshold, rise, trailing_mean
from rolltree.tree import Node


@dataclass(frozen=True, slots=True)
class Doubt:
    """Ends a path at the first action where one of three signs of being lost appears.

    - group confidence falls below `floor`;
    - `falls` drops of tail confidence in a row, at or below `tail_floor`;
    - entropy above its trailing mean `spikes` times in a row, by more than `spike` at last.

    ECHO's published thresholds (0.4, 1.0, 0.5) belong to another scale; the first two defaults are ours. It looks
    between stretches, so a path ends at the end of the chunk in which the sign appears.
    """

    floor: float = 0.12
    tail_floor: float = 0.17
    spike: float = 0.5
    falls: int = 3
    spikes: int = 3
    group: int = 4
    tail: int = 8
    before: int = 4
    gauge: Gauge = field(default_factory=Gauge)
    ending: Literal["truncate", "prune"] = "truncate"
    """"truncate": the leaf ends here, is verified as it stands and teaches (as published); "prune": it does not."""

    def check(self, vocabulary: int) -> None:
        """Refuse thresholds that never or always fire on the variant in use."""
        for value, name in ((self.floor, "floor"), (self.tail_floor, "tail floor")):
            check_threshold(self.gauge.confidence, "<=", value, vocabulary, where=f"doubt's {name}")
        check_threshold(self.gauge.entropy, ">=", self.spike, vocabulary, where="doubt's spike")

    def first(self, reading: GateReading) -> tuple[int, str] | None:
        """Index and name of the first sign."""
        tail = trailing_mean(reading.confidence, self.tail)
        climb = rise(reading.entropy, self.before)
        signs = {
            "low group confidence": trailing_mean(reading.confidence, self.group) < self.floor,
            "falling tail confidence": _in_a_row(np.diff(tail, prepend=tail[:1]) < 0, self.falls)
            & (tail <= self.tail_floor),
            "entropy spikes": _in_a_row(climb > 0, self.spikes) & (climb > self.spike),
        }
        found = [(int(sign.argmax()), name) for name, sign in signs.items() if sign.any()]
        return min(found) if found else None

    async def __call__(self, hand: Hand, leaf: Node) -> None:
        """End the leaf if there is a sign on its path."""
        reading = self.gauge.read(hand.tree, leaf)
        found = self.first(reading)
        if found is None:
            return
        index, why = found
        numbers = {"position": int(reading.position[index]), "confidence": float(reading.confidence[index])}
        if self.ending == "prune":
            hand.prune(leaf, why=why, **numbers)
        else:
            hand.close(leaf, "abort", why, **numbers)
            await hand.verify(leaf)


def _in_a_row(yes: NDArray[np.bool_], times: int) -> NDArray[np.bool_]:
    """Where something has been true for the last `times` entries."""
    count = np.zeros(len(yes), np.int64)
    for i, here in enumerate(yes):
        count[i] = (count[i - 1] if i else 0) + 1 if here else 0
    return count >= times
