"""Simulated time: how long a run's rollouts and updates would take on a stated cluster under the run's own schedule.

The lengths are those that the run's rollouts really had (`watched.jsonl` beside the run); the schedule is the one it
was trained with, driven by `studies.clock` in place of an engine. So arms whose rollouts have other lengths, or whose
schedule waits otherwise for the longest, differ in it, and nothing depends on the machine that trained them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolltree.compare.parts_apart import shapes_trees
from rolltree.compare.runner import Composes, Runner, Spec
from rolltree.compare.trace import Trace
from rolltree.compare.watch import lengths
from rolltree.control.schedule import Schedule
from rolltree.rollout.scheduled import schedule_of
from studies.clock.hardware import Hardware
from studies.clock.work import Job, WorkItem
from studies.clock.world import ClockWorld, simulate

Steps = Sequence[Sequence[Sequence[int]]]
"""Policy tokens of every rollout, by step and group."""
CLUSTER = Hardware()
"""Whose seconds are counted: docs/measured/scheduling.md describes it."""


@dataclass(frozen=True, slots=True)
class RecordedWork:
    """The groups of a run in their order; a schedule that starts more than were trained gets the first ones again."""

    groups: Sequence[Sequence[int]]
    failing: float = 0.0

    def item(self, number: int, rollouts: int) -> WorkItem:
        """A group's rollouts, each of one turn."""
        return WorkItem(tuple(Job((n,)) for n in self.groups[number % len(self.groups)]), 0.0)


def seconds(steps: Steps, schedule: Schedule, hardware: Hardware = CLUSTER) -> float:
    """Until the last update is published. Steps and groups are taken to be of their mean size."""
    groups = [[max(n, 1) for n in group] for step in steps for group in step if group]
    batch = max(round(len(groups) / len(steps)), 1)
    size = max(round(sum(map(len, groups)) / len(groups)), 1)
    world = ClockWorld(hardware)
    simulate(schedule, world, RecordedWork(groups), updates=len(steps), batch=batch, size=size)
    return world.now


def simulated(trace: Trace, spec: Spec, runner: Runner) -> float | None:
    """Simulated seconds of a run; None where lengths were not kept, or where rollouts share what they decode."""
    steps = lengths(Path(trace.folder).parent / "watched.jsonl") if trace.folder else []
    if not any(group for step in steps for group in step) or not isinstance(runner, Composes):
        return None
    parts, knobs = runner.parts(spec), dict(spec.arm.knobs)
    if shapes_trees(parts.strategy):
        return None
    named, staleness = str(knobs.get("train.scheduler", "")), int(str(knobs.get("train.staleness", 0)))
    return seconds(steps, schedule_of(parts, named, staleness))
