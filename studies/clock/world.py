"""An executor in simulated time: engines, environments and a trainer report to the scheduler from a heap of events."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rolltree.control.schedule import Group, Offer, Rollout, Schedule, Scheduler, Segment
from rolltree.control.schedule.executor import Finish
from rolltree.errors import RolltreeError
from studies.clock.engine import SimEngine, Trip
from studies.clock.hardware import Hardware
from studies.clock.work import Work

SPARES = 4
"""Jobs an item holds beyond those of its rollouts: for substitutes of failed ones, which take them in turn."""


class ClockError(RolltreeError, RuntimeError):
    """A simulation that cannot go on: says what stands still."""


@dataclass(slots=True, eq=False)
class ClockWorld:
    """All that takes time. Make it, `drive` it, then read the scheduler's numbers and its own."""

    hardware: Hardware
    now: float = 0.0
    decoded: int = 0
    """Tokens that engines made."""
    prefilled: int = 0
    training: float = 0.0
    """Seconds the trainer worked."""
    syncing: float = 0.0
    engines: list[SimEngine] = field(default_factory=list[SimEngine])
    trips: dict[int, Trip] = field(default_factory=dict[int, Trip])
    """What is under way, by rollout."""
    _events: list[tuple[float, int, Callable[[], None]]] = field(
        default_factory=list[tuple[float, int, Callable[[], None]]]
    )
    _count: int = 0
    _dirty: dict[int, SimEngine] = field(default_factory=dict[int, SimEngine])
    _waiting: deque[Trip] = field(default_factory=deque[Trip])
    _loads: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _answers: dict[int, float] = field(default_factory=dict[int, float])
    """When an environment's answer is there, for rollouts that were stopped while they waited for it."""
    _scheduler: Scheduler | None = None

    def __post_init__(self) -> None:
        self.engines = [SimEngine(i, self.hardware) for i in range(self.hardware.engines)]
        self._loads = [(0, i) for i in range(self.hardware.engines)]

    @property
    def scheduler(self) -> Scheduler:
        """Whom it reports to."""
        if self._scheduler is None:
            raise ClockError("this world drives no scheduler yet; call drive")
        return self._scheduler

    def drive(self, scheduler: Scheduler, updates: int) -> None:
        """Run until so many updates are published, then close. Raises if everything stands still before."""
        self._scheduler = scheduler
        scheduler.pump()
        self._forecast()
        while scheduler.version < updates:
            if not self._events:
                raise ClockError(
                    f"nothing is under way at {self.now:.1f} s and version {scheduler.version} of {updates}: the "
                    f"schedule has stopped itself ({scheduler.load})"
                )
            self._turn()
        scheduler.close()
        while scheduler.running:
            self._turn()

    # What the scheduler asks for.

    def start(self, rollout: Rollout) -> None:
        """Find out where in its work the rollout stands and put it there."""
        jobs, turn, left = rollout.group.item.jobs, 0, rollout.tokens
        job = jobs[rollout.index % len(jobs)]
        while turn < len(job.turns) - 1 and left >= job.turns[turn]:
            left -= job.turns[turn]
            turn += 1
        trip = self.trips[rollout.id] = Trip(rollout, job, turn, job.turns[turn] - left)
        answer = self._answers.get(rollout.id, 0.0)
        if answer > self.now:
            self._at(answer, lambda: self._answered(trip))
        else:
            self._answers.pop(rollout.id, None)
            self._place(trip)

    def abort(self, rollouts: Sequence[Rollout]) -> None:
        """Take rollouts off wherever they are; they are reported at this very time."""
        for rollout in rollouts:
            trip = self.trips.get(rollout.id)
            if trip is not None:
                del self.trips[rollout.id]
                self._take_off(trip)

    def train(self, batch: Sequence[Group]) -> None:
        """Work on every kept rollout's tokens."""
        if self.hardware.colocated and self.trips:
            raise ClockError(
                f"{len(self.trips)} rollouts are under way on devices that are to train; "
                "use a schedule that stops, or set colocated=False"
            )
        seconds = sum(r.tokens for g in batch for r in g.kept) * self.hardware.train / self.hardware.trainer
        self.training += seconds
        self._at(self.now + seconds, self.scheduler.trained)

    def publish(self, version: int) -> None:
        """Engines at rest reload all at once, others in waves."""
        sync, waves = self.hardware.sync, min(self.hardware.waves, len(self.engines))
        if self.scheduler.schedule.resume.update != "run on":
            waves = 1
        for wave in range(waves):
            self._at(self.now + wave * sync, lambda wave=wave: self._reload(self.engines[wave::waves], version))
        self.syncing += waves * sync
        self._at(self.now + waves * sync, self.scheduler.published)

    # What happens in time.

    def _at(self, time: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, call))

    def _turn(self) -> None:
        time, _, call = heapq.heappop(self._events)
        self.now = time
        call()
        self._forecast()

    def _forecast(self) -> None:
        for engine in self._dirty.values():
            engine.epoch += 1
            then = engine.forecast()
            if then < math.inf:
                self._at(then, lambda engine=engine, epoch=engine.epoch: self._due(engine, epoch))
        self._dirty.clear()

    def _touch(self, engine: SimEngine) -> None:
        engine.advance(self.now)
        self._dirty[engine.index] = engine

    def _due(self, engine: SimEngine, epoch: int) -> None:
        if epoch != engine.epoch:
            return
        self._touch(engine)
        while (trip := engine.due()) is not None:
            self._spoken(trip, engine)

    def _spoken(self, trip: Trip, engine: SimEngine) -> None:
        """A turn is complete, its sequence off the engine."""
        trip.loose = 0
        if trip.turn < len(trip.job.turns) - 1:
            engine.held += 1
            self._at(self.now + trip.job.waits[trip.turn], lambda: self._answered(trip))
            self._answers[trip.rollout.id] = self.now + trip.job.waits[trip.turn]
            trip.turn += 1
            trip.left = trip.job.turns[trip.turn]
            return
        del self.trips[trip.rollout.id]
        self._freed(engine)
        self._report(trip, "failed" if trip.job.fails else "done")

    def _answered(self, trip: Trip) -> None:
        """An environment has answered; its sequence still has its slot and its cache, if it had one."""
        if self.trips.get(trip.rollout.id) is not trip:
            return
        self._answers.pop(trip.rollout.id, None)
        engine = trip.engine
        if engine is None:
            self._place(trip)
            return
        engine.held -= 1
        self._touch(engine)
        engine.add(trip, 0)

    def _place(self, trip: Trip) -> None:
        """On the engine with the fewest sequences, or into the queue."""
        while self._loads[0][0] != self.engines[self._loads[0][1]].load:
            heapq.heappop(self._loads)
        load, index = self._loads[0]
        if load >= self.hardware.slots:
            self._waiting.append(trip)
            return
        self._seat(trip, self.engines[index])

    def _seat(self, trip: Trip, engine: SimEngine) -> None:
        self._touch(engine)
        context = self.hardware.prompt + trip.rollout.tokens
        self.prefilled += context
        engine.add(trip, context)
        heapq.heappush(self._loads, (engine.load, engine.index))

    def _freed(self, engine: SimEngine) -> None:
        while self._waiting:
            trip = self._waiting.popleft()
            if self.trips.get(trip.rollout.id) is trip:
                self._seat(trip, engine)
                return
        heapq.heappush(self._loads, (engine.load, engine.index))

    def _take_off(self, trip: Trip) -> None:
        engine, finish = trip.engine, "abort"
        if engine is not None:
            self._touch(engine)
            if trip.rollout.id in engine.active:
                engine.remove(trip)
                if trip.left == 0:
                    trip.loose = 0
                    finish = "done" if trip.turn == len(trip.job.turns) - 1 and not trip.job.fails else "abort"
            else:
                engine.held -= 1
            self._freed(engine)
        self._at(self.now, lambda: self._report(trip, finish))

    def _reload(self, engines: Sequence[SimEngine], version: int) -> None:
        for engine in engines:
            self._touch(engine)
            if self.scheduler.schedule.resume.update == "run on":
                engine.reload(version)
            engine.version = version

    def _report(self, trip: Trip, finish: Finish) -> None:
        made: list[Segment] = trip.made
        self.decoded += sum(s.tokens for s in made)
        self.scheduler.ended(trip.rollout, made, finish, loose=trip.loose)


def simulate(
    schedule: Schedule, world: ClockWorld, work: Work, *, updates: int, batch: int, size: int,
    on_settled: Callable[[Group], None] = lambda _: None, accept: Callable[[Group], bool] = lambda _: True,
) -> Scheduler:  # fmt: skip
    """Drive a schedule through a new world for so many updates; the same arguments give the same run.

    A plan is a batch of prompts here: each of them is asked once.
    """
    jobs, begun = size + schedule.stop.spare + (SPARES if work.failing else 0), 0

    def fresh(number: int) -> Offer:
        nonlocal begun
        begun = number + 1
        return Offer(work.item(number, jobs), (size,), plan=number // batch)

    scheduler = Scheduler(
        schedule, world, fresh, batch, lambda: world.now, accept, on_settled,
        lambda: schedule.lockstep and begun % batch > 0,
    )  # fmt: skip
    world.drive(scheduler, updates)
    return scheduler
