"""What a simulated run is judged by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rolltree.control.schedule import Group, Schedule
from studies.clock.hardware import Hardware
from studies.clock.work import Job, WorkItem, Workload
from studies.clock.world import ClockWorld, simulate

SLOW = 1.2816
"""Prompts above this deviate are slow ones: a tenth of all."""


@dataclass(frozen=True, slots=True)
class ClockOutcome:
    """Speeds and lags are of the second part of a run, once `settled` updates were made."""

    tokens_per_second: float
    """Trained tokens per second and device, the trainer's devices included."""
    rollouts_per_minute: float
    """Trained rollouts per minute and device."""
    over_bound: float
    """Makespan over its lower bound."""
    idle: float
    """Share of what the engines could have decoded and did not."""
    wasted: float
    """Share of decoded tokens that are in no trained rollout and are not carried either."""
    lags: tuple[float, ...]
    """Share of trained groups by lag in versions."""
    lag: float
    lag_max: int
    stale_tokens: float
    """Share of trained tokens made under older weights than those they train."""
    slow: float | None
    """Share of the slow prompts of a run's first half that were trained by its end; None where there were none."""
    other: float | None
    """The same of all other prompts."""
    dropped: float
    """Share of settled rollouts that some rule dropped, those carried at the end left out."""


@dataclass(slots=True)
class Batches:
    """Collects what is trained, batch by batch."""

    skip: int
    times: list[float] = field(default_factory=list[float])
    tokens: Counter[int] = field(default_factory=Counter[int])
    rollouts: Counter[int] = field(default_factory=Counter[int])
    lags: Counter[int] = field(default_factory=Counter[int])
    stale: int = 0
    work: int = 0
    longest: float = 0.0
    kept: int = 0

    def add(self, group: Group[WorkItem], now: float, hardware: Hardware) -> None:
        """Book a trained group."""
        version = group.born + group.staleness
        if version == len(self.times):
            self.times.append(now)
        item: WorkItem = group.item
        for rollout in group.kept:
            tokens = rollout.tokens
            self.work += tokens
            self.kept += 1
            self.longest = max(self.longest, path(item.jobs[rollout.index % len(item.jobs)], hardware))
            self.tokens[version] += tokens - rollout.masked
            if version >= self.skip:
                self.stale += sum(s.tokens for s in rollout.segments if s.version < version)
        self.rollouts[version] += len(group.kept)
        if version >= self.skip:
            self.lags[group.staleness] += 1


def path(job: Job, hardware: Hardware) -> float:
    """Least seconds from a rollout's start to its end."""
    return hardware.prefill * hardware.prompt + hardware.plateau * sum(job.turns) + sum(job.waits)


def lower_bound(batches: Batches, hardware: Hardware, training: float) -> float:
    """No schedule trains these rollouts sooner: engines at their peak, the longest path, and the trainer.

    The list-scheduling bound: all work over all engines, or the longest path if that is more; training adds to it where
    it needs the same devices, and otherwise must itself fit in.
    """
    work = batches.work / hardware.peak + batches.kept * hardware.prefill * hardware.prompt
    rollout = max(work / hardware.engines, batches.longest)
    if hardware.colocated:
        return max(work / hardware.engines + training, batches.longest)
    return max(rollout, training)


def run(
    schedule: Schedule, hardware: Hardware, work: Workload, *, updates: int, per_engine: int, size: int = 8,
    settled: int | None = None,
) -> ClockOutcome:  # fmt: skip
    """Simulate and measure. `per_engine` groups on each engine make a batch."""
    batches = Batches(max(updates // 3, 1) if settled is None else settled)
    asked: Counter[bool] = Counter()
    reached: Counter[bool] = Counter()
    early = updates // 2 * per_engine * hardware.engines
    world = ClockWorld(hardware)

    def told(group: Group[WorkItem]) -> None:
        if group.number < early:
            asked[group.item.slowness > SLOW] += 1
            reached[group.item.slowness > SLOW] += group.usage == "trained"
        if group.usage == "trained":
            batches.add(group, world.now, hardware)

    scheduler = simulate(
        schedule, world, work, updates=updates, batch=per_engine * hardware.engines, size=size, on_settled=told
    )
    first = batches.skip
    last = len(batches.times) - 1
    seconds = (batches.times[last] - batches.times[first - 1]) * hardware.devices
    later = range(first, last + 1)
    groups = sum(batches.lags.values())
    tokens = sum(batches.tokens[v] for v in later)
    most = max(batches.lags)
    settled_rollouts = sum(n for usage, n in scheduler.numbers.items() if usage not in ("submitted", "carried"))
    dropped = sum(n for usage, n in scheduler.numbers.items() if usage.startswith("dropped") or usage == "failed")
    return ClockOutcome(
        tokens_per_second=tokens / seconds,
        rollouts_per_minute=60 * sum(batches.rollouts[v] for v in later) / seconds,
        over_bound=world.now / lower_bound(batches, hardware, world.training),
        idle=1 - world.decoded / (hardware.peak * hardware.engines * world.now),
        wasted=scheduler.tokens["wasted"] / world.decoded,
        lags=tuple(batches.lags[k] / groups for k in range(most + 1)),
        lag=sum(k * n for k, n in batches.lags.items()) / groups,
        lag_max=most,
        stale_tokens=batches.stale / tokens,
        slow=reached[True] / asked[True] if asked[True] else None,
        other=reached[False] / asked[False] if asked[False] else None,
        dropped=dropped / settled_rollouts,
    )
