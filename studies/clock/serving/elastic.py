"""ElasticMoE (arXiv 2510.02613) on the clock: capacity follows the load by restarts, by whole replicas, or device by
device with weights from the neighbours and requests that keep their keys and values. Replicas start from nothing, or
from processes that stand ready as those of the elastic way do ("standby"), and then get their weights the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rolltree.cluster.elastic import Elastic
from studies.clock.engine import SimEngine
from studies.clock.link import RDMA
from studies.clock.serving.decode import DecodePool, decode_pool
from studies.clock.serving.experts import fewest_moves, moved, round_robin
from studies.clock.serving.ratio import Ratio, over
from studies.clock.serving.serve import DEVICE, LIMITS
from studies.clock.serving.traffic import Ask, Traffic

Scaling = Literal["restart", "replica", "standby", "elastic", "none"]
EXPERTS, LAYERS = 256, 48
EXPERT_BYTES = 12e6
"""Weights of one expert of a layer; all of them are 147 GB."""
START = 60.0
"""Seconds until a new process serves: it starts, reads its weights from a disk, and warms up. Assumed."""
STANDBY = 3.0
"""Seconds until a process that stands ready has joined its groups, beside the weights. Assumed."""
SWITCH = 0.2
"""Seconds that engines pause when requests begin to go by the new map. Assumed."""
UNIT = 8
"""Devices of a replica, which holds all experts."""


def latency(how: Scaling, before: int, after: int) -> float:
    """Seconds from the decision until the new devices serve."""
    if how in ("restart", "replica"):
        return START
    if how == "standby":
        each = EXPERTS // UNIT
        return STANDBY + RDMA.seconds(each * LAYERS * EXPERT_BYTES, each * LAYERS)
    old = round_robin(EXPERTS, before)
    each = max(moved(old, fewest_moves(old, after)) // max(after - before, 1), 1)
    # New devices fetch their experts at once, each over a link of its own.
    return STANDBY + RDMA.seconds(each * LAYERS * EXPERT_BYTES, each * LAYERS) + SWITCH


@dataclass(frozen=True, slots=True)
class Scaled:
    """What came of a run."""

    asked: int
    done: int
    in_time: float
    device_seconds: float
    again: int
    moved: int
    changes: int
    most: int
    answered: float
    """Tokens per second of requests that ended during the tide."""


@dataclass(slots=True, eq=False)
class Scaler:
    """Watches the load and changes the pool."""

    how: Scaling
    pool: DecodePool
    rule: Elastic
    until: float
    engines: list[SimEngine[Ask]]
    changes: int = 0
    busy_until: float = 0.0
    device_seconds: float = 0.0
    largest: int = 0

    def look(self) -> None:
        """Once a second: count what is paid for, and decide."""
        time = self.pool.floor.time
        self.device_seconds += len(self.engines)
        self.largest = max(self.largest, len(self.engines))
        if self.how != "none" and time.now >= self.busy_until:
            at_work = sum(e.load for e in self.pool.pool.engines) + len(self.pool.pool.waiting)
            engines = len(self.engines)
            wanted = self.rule.wanted(engines, at_work)
            if self.how == "restart" and wanted > engines:
                # Who must stop everything to grow does so once.
                wanted = self.rule.most
            if wanted > engines:
                self._grow(wanted - engines)
            elif wanted < engines:
                self._shrink(engines - wanted)
        if time.now < self.until:
            time.at(time.now + 1.0, self.look)

    def _grow(self, step: int) -> None:
        time, wanted = self.pool.floor.time, len(self.engines) + step
        takes = latency(self.how, len(self.engines), wanted)
        self._changed(takes)
        if self.how == "restart":
            self._stop_all()
            time.at(time.now + takes, lambda: self._join(wanted))
        else:
            self.device_seconds += step * takes
            time.at(time.now + takes, lambda: self._join(step))

    def _shrink(self, step: int) -> None:
        leaving = self.engines[-step:]
        wanted = len(self.engines) - step
        takes = latency("restart", 1, 2) if self.how == "restart" else 0.0
        self._changed(takes)
        if self.how == "restart":
            self._stop_all()
            self.pool.floor.time.at(self.pool.floor.time.now + takes, lambda: self._join(wanted))
            return
        del self.engines[-step:]
        for engine in leaving:
            if self.how in ("replica", "standby"):
                self.pool.drain(engine)
            else:
                self.pool.hand_over(engine)

    def _changed(self, takes: float) -> None:
        self.changes += 1
        self.busy_until = self.pool.floor.time.now + takes + self.rule.cool

    def _stop_all(self) -> None:
        stopped, self.engines = self.engines, []
        for engine in stopped:
            self.pool.lose(engine)

    def _join(self, count: int) -> None:
        if self.how == "elastic":
            for engine in self.engines:
                self.pool.stop(engine, SWITCH)
        self.engines += self.pool.grow(count)


def tides(devices: int, seconds: float = 240.0) -> Traffic:
    """Quiet, then three times as much, then quiet: what so many devices carry lies between."""
    return Traffic(4.0 * devices, seconds, burst=1.0, profile=(0.5, 0.5, 2.0, 2.0, 2.0, 0.5, 0.5, 0.5))


def scale(how: Scaling, devices: int, seed: int) -> Scaled:
    """A run that begins with so many devices and may have three times as many."""
    traffic = tides(devices)
    asks, done = traffic.asks(seed), list[Ask]()
    pool = decode_pool(DEVICE, 0, done.append, prefills=True)
    rule = Elastic(devices, 3 * devices, smallest=2, unit=UNIT if how in ("replica", "standby") else 1, whole=True)
    scaler = Scaler(how, pool, rule, traffic.seconds, pool.grow(devices))
    time = pool.floor.time
    time.at(0.0, scaler.look)
    for ask in asks:
        time.at(ask.arrives, lambda ask=ask: pool.offer(ask))
    while not time.empty:
        pool.floor.turn()
    good = [a for a in done if LIMITS.met(a)]
    tide = (traffic.seconds * 2 / 8, traffic.seconds * 5 / 8)
    return Scaled(
        len(asks), len(done), len(good) / len(asks), scaler.device_seconds, pool.again, pool.moved, scaler.changes,
        scaler.largest, sum(a.output for a in done if tide[0] <= a.ended < tide[1]) / (tide[1] - tide[0]),
    )  # fmt: skip


def ratios(sizes: Sequence[tuple[int, int]] = ((2, 5), (8, 5), (64, 2), (1024, 2))) -> Iterator[Ratio]:
    """Elastic over the other ways."""
    for other in ("restart", "replica", "standby"):
        mine, theirs = latency("elastic", 8, 10), latency(other, 8, 10)
        yield over(f"seconds until new devices serve, {other} over elastic", "8 to 10 devices", [theirs], [mine])
    for devices, seeds in sizes:
        runs = {how: [scale(how, devices, s) for s in range(seeds)] for how in HOW}
        for other in ("restart", "replica", "standby", "none"):
            for what, of in MEASURES.items():
                yield over(
                    f"{what}, elastic over {other}", f"{devices:,} to {3 * devices:,} devices",
                    [of(r) for r in runs["elastic"]], [of(r) for r in runs[other]],
                )  # fmt: skip


HOW: tuple[Scaling, ...] = ("restart", "replica", "standby", "elastic", "none")
MEASURES = {
    "requests in time": lambda r: r.in_time,
    "tokens per second at the tide": lambda r: r.answered,
    "device-seconds": lambda r: r.device_seconds,
}
"""What is compared."""
