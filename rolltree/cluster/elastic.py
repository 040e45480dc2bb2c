"""When a pool grows and when it shrinks: by the requests there are for each of its engines.

One rule for real pools and for the virtual clock (`studies/clock/serving/elastic.py`), so that what is measured on
simulated engines is the rule that runs. (ElasticMoE, arXiv 2510.02613, changes capacity in small steps under load.)
"""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.cluster.errors import ClusterError

HIGH, LOW = 40.0, 12.0
"""Requests per engine, those that wait included, above which capacity grows and below which it shrinks."""
COOL = 5.0
"""Seconds after a change before the next is begun."""


@dataclass(frozen=True, slots=True)
class Elastic:
    """From `least` to `most` engines, a quarter of those at work in a step."""

    least: int
    most: int
    high: float = HIGH
    low: float = LOW
    cool: float = COOL
    every: float = 1.0
    """Seconds between two looks at the load."""
    smallest: int = 1
    """Engines of the smallest step."""
    unit: int = 1
    """A step is a multiple of this."""
    whole: bool = False
    """Whether a step that does not fit between the bounds is left out; else as much of it is taken as fits."""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ClusterError(
                f"a pool cannot have from {self.least} to {self.most} engines; give LOW:HIGH with LOW of at "
                "least 1 and HIGH of at least LOW"
            )
        if self.low * 2 > self.high:
            raise ClusterError(
                f"a pool that grows above {self.high:g} requests an engine and shrinks below {self.low:g} would do one "
                "after the other; give low of at most half of high"
            )

    def wanted(self, engines: int, at_work: int) -> int:
        """How many engines there should be for so many requests, given how many there are."""
        step = max(self.smallest, engines // 4)
        step = self.unit * -(-step // self.unit)
        if at_work > self.high * engines:
            room = self.most - engines
            return engines + self._fitting(step, room)
        if at_work < self.low * engines:
            room = engines - self.least
            return engines - self._fitting(step, room)
        return engines

    def _fitting(self, step: int, room: int) -> int:
        if step <= room:
            return step
        return 0 if self.whole else max(room, 0)


def parse_engines(text: str) -> int | Elastic | None:
    """`N`, `LOW:HIGH`, or nothing, as `--cluster-engines` takes it."""
    if not text:
        return None
    least, colon, most = text.partition(":")
    if not (least.isdigit() and (most.isdigit() if colon else True)):
        raise ClusterError(f"--cluster-engines {text!r} is no number of engines; give N, or LOW:HIGH")
    return Elastic(int(least), int(most)) if colon else int(least)
