"""An executor in simulated time: engines, environments and a trainer report to the scheduler from a heap of events."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rolltree.control.schedule import Group, Offer, Rollout, Schedule, Scheduler, Segment
from rolltree.control.schedule.scheduler import Finish
from rolltree.errors import RolltreeError
from studies.clock.engine import Running, SimEngine
from studies.clock.floor import Floor
from studies.clock.hardware import Hardware
from studies.clock.pool import Pool
from studies.clock.work import Job, Work

SPARES = 4
"""Jobs an item holds beyond those of its rollouts: for substitutes of failed ones, which take them in turn."""


class ClockError(RolltreeError, RuntimeError):
    """A simulation that cannot go on: says what stands still."""


@dataclass(slots=True, eq=False, kw_only=True)
class Trip(Running):
    """A rollout from one start to its next report."""

    rollout: Rollout
    job: Job
    turn: int


@dataclass(slots=True, eq=False)
class ClockWorld:
    """All that takes time. Make it, `drive` it, then read the scheduler's numbers and its own."""

    hardware: Hardware
    fleet: Mapping[str, Hardware] = field(default_factory=dict[str, Hardware])
    """Pools of engines of several kinds, each with its `engines`; where it is empty all are of `hardware`."""
    decoded: int = 0
    """Tokens that engines made."""
    prefilled: int = 0
    training: float = 0.0
    """Seconds the trainer worked."""
    syncing: float = 0.0
    engines: list[SimEngine[Trip]] = field(default_factory=list["SimEngine[Trip]"])
    trips: dict[int, Trip] = field(default_factory=dict[int, "Trip"])
    """What is under way, by rollout."""
    verifying: float = 0.0
    """Seconds that verifiers worked."""
    _pools: dict[str, Pool[Trip]] = field(default_factory=dict[str, "Pool[Trip]"])
    _home: dict[int, Pool[Trip]] = field(default_factory=dict[int, "Pool[Trip]"])
    _unverified: deque[Trip] = field(default_factory=deque["Trip"])
    _verifiers: int = 0
    """Verifiers at work."""
    _answers: dict[int, float] = field(default_factory=dict[int, float])
    """When an environment's answer is there, for rollouts that were stopped while they waited for it."""
    _scheduler: Scheduler | None = None
    _floor: Floor[Trip] = field(init=False)

    def __post_init__(self) -> None:
        self._floor = Floor(self._spoken)
        for name, hardware in (self.fleet or {"": self.hardware}).items():
            pool = self._pools[name] = Pool()
            for _ in range(hardware.engines):
                engine: SimEngine[Trip] = SimEngine(len(self.engines), hardware)
                self.engines.append(engine)
                self._home[engine.index] = pool
                pool.join(engine)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._floor.time.now

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
        self._floor.forecast()
        while scheduler.version < updates:
            if self._floor.time.empty:
                raise ClockError(
                    f"nothing is under way at {self.now:.1f} s and version {scheduler.version} of {updates}: the "
                    f"schedule has stopped itself ({scheduler.load})"
                )
            self._floor.turn()
        scheduler.close()
        while scheduler.running:
            self._floor.turn()

    # What the scheduler asks for.

    def start(self, rollout: Rollout) -> None:
        """Find out where in its work the rollout stands and put it there."""
        jobs, turn, left = rollout.group.item.jobs, 0, rollout.tokens
        job = jobs[rollout.index % len(jobs)]
        while turn < len(job.turns) - 1 and left >= job.turns[turn]:
            left -= job.turns[turn]
            turn += 1
        context = self.hardware.prompt + rollout.tokens + sum(job.reads[:turn])
        trip = self.trips[rollout.id] = Trip(
            id=rollout.id, left=job.turns[turn] - left, context=context, rollout=rollout, job=job, turn=turn
        )
        answer = self._answers.get(rollout.id, 0.0)
        if answer > self.now:
            self._floor.time.at(answer, lambda: self._answered(trip))
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
        behind = self.hardware.hidden * self.hardware.sync
        self._floor.time.at(self.now + seconds + behind, self.scheduler.trained)

    def publish(self, version: int) -> None:
        """Engines at rest reload all at once, others in waves."""
        sync, waves = (1 - self.hardware.hidden) * self.hardware.sync, min(self.hardware.waves, len(self.engines))
        if self.scheduler.schedule.resume.update != "run on":
            waves = 1
        for wave in range(waves):
            self._floor.time.at(
                self.now + wave * sync, lambda wave=wave: self._reload(self.engines[wave::waves], version)
            )
        self.syncing += waves * sync
        self._floor.time.at(self.now + waves * sync, self.scheduler.published)

    # What happens in time.

    def _spoken(self, trip: Trip, engine: SimEngine[Trip]) -> None:
        """A turn is complete, its sequence off the engine."""
        trip.loose = 0
        if trip.turn < len(trip.job.turns) - 1:
            engine.held += 1
            self._floor.time.at(self.now + trip.job.waits[trip.turn], lambda: self._answered(trip))
            self._answers[trip.rollout.id] = self.now + trip.job.waits[trip.turn]
            trip.turn += 1
            trip.left = trip.job.turns[trip.turn]
            return
        self._freed(engine)
        if trip.job.verify:
            trip.engine = None
            self._unverified.append(trip)
            self._verify()
        else:
            self._complete(trip)

    def _verify(self) -> None:
        """Give rollouts to verifiers, in the order they came."""
        while self._unverified and self._verifiers < (self.hardware.verifiers or math.inf):
            trip = self._unverified.popleft()
            if self.trips.get(trip.rollout.id) is trip:
                self._verifiers += 1
                self.verifying += trip.job.verify
                self._floor.time.at(self.now + trip.job.verify, lambda trip=trip: self._verified(trip))

    def _verified(self, trip: Trip) -> None:
        self._verifiers -= 1
        if self.trips.get(trip.rollout.id) is trip:
            self._complete(trip)
        self._verify()

    def _complete(self, trip: Trip) -> None:
        del self.trips[trip.rollout.id]
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
        self._floor.touch(engine)
        read = trip.job.reads[trip.turn - 1] if trip.job.reads else 0
        self.prefilled += read
        trip.context += read
        engine.add(trip, read)

    def _place(self, trip: Trip) -> None:
        """On the engine with the fewest sequences, or into the queue."""
        pool = self._pool(trip)
        engine = pool.free()
        if engine is None:
            pool.waiting.append(trip)
        else:
            self._seat(trip, engine)

    def _pool(self, trip: Trip) -> Pool[Trip]:
        """The one its work belongs to, or the one that has an engine with the fewest sequences."""
        if trip.job.pool in self._pools:
            return self._pools[trip.job.pool]
        free = {name: pool.free() for name, pool in self._pools.items()}
        loads = {name: engine.load for name, engine in free.items() if engine is not None}
        return self._pools[min(loads or free, key=lambda name: loads.get(name, 0))]

    def _seat(self, trip: Trip, engine: SimEngine[Trip]) -> None:
        self._floor.touch(engine)
        self.prefilled += trip.context
        engine.add(trip, trip.context)
        self._home[engine.index].changed(engine)

    def _freed(self, engine: SimEngine[Trip]) -> None:
        pool = self._home[engine.index]
        while pool.waiting:
            trip = pool.waiting.popleft()
            if self.trips.get(trip.rollout.id) is trip:
                self._seat(trip, engine)
                return
        pool.changed(engine)

    def _take_off(self, trip: Trip) -> None:
        engine, finish = trip.engine, "abort"
        if engine is not None:
            self._floor.touch(engine)
            if trip.rollout.id in engine.active:
                engine.remove(trip)
                if trip.left == 0:
                    trip.loose = 0
                    finish = "done" if trip.turn == len(trip.job.turns) - 1 and not trip.job.fails else "abort"
            else:
                engine.held -= 1
            self._freed(engine)
        self._floor.time.at(self.now, lambda: self._report(trip, finish))

    def _reload(self, engines: Sequence[SimEngine[Trip]], version: int) -> None:
        for engine in engines:
            self._floor.touch(engine)
            if self.scheduler.schedule.resume.update == "run on":
                engine.reload(version, (1 - self.hardware.hidden) * self.hardware.sync)
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
